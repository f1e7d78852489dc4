package kube

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/kilo"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// FromKilo reads Kilo's objects, as kubectl get nodes,peers.kilo.squat.ai -o yaml prints them, and
// returns those of ours that say the same, as YAML to apply: a MeshNode for each Node that an
// administrator annotated, and a Peer for each Peer, with a Secret where it has a preshared key. What
// Kilo passes over in silence is left out and named.
//
// The text holds preshared keys when the Peers have some.
func FromKilo(name string, r io.Reader, locationLabel, namespace string) (manifests string, problems []mesh.Problem, err error) {
	set, err := readObjects(name, r)
	if err != nil {
		return "", nil, err
	}
	if locationLabel == "" {
		locationLabel = kilo.DefaultLocationLabel
	}
	m := &migration{namespace: namespace, problems: set.problems}
	for _, name := range slices.Sorted(maps.Keys(set.nodes)) {
		m.node(set.nodes[name], locationLabel)
	}
	slices.SortFunc(set.kiloPeers, func(a, b kiloPeer) int { return strings.Compare(a.Name, b.Name) })
	for i := range set.kiloPeers {
		m.peer(&set.kiloPeers[i])
	}
	return m.text.String(), m.problems, m.err
}

// migration is the manifests that are being written.
type migration struct {
	namespace string
	text      bytes.Buffer
	problems  []mesh.Problem
	err       error
}

func (m *migration) node(o *corev1.Node, label string) {
	n, problems := kilo.ReadNode(kiloNode(o), label)
	m.problems = append(m.problems, problems...)
	spec := v1alpha1.MeshNodeSpec{
		Leader: n.Leader, Endpoint: declared(n).Endpoint.String(),
		PersistentKeepalive: int32(n.Fact(mesh.Identity{}).Spec.PersistentKeepalive.Seconds()),
		ExtraPrefixes:       texts(n.Fact(mesh.Identity{}).Spec.ExtraPrefixes),
	}
	if n.Location != o.Labels[label] {
		spec.Location = &n.Location
	}
	switch n.Internal {
	case kilo.None:
		spec.InternalIPs = []string{none}
	case kilo.Declared:
		spec.InternalIPs = []string{n.InternalIP.Addr().String()}
	}
	if !said(spec) {
		return
	}
	m.write(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "MeshNode",
		"metadata": map[string]any{"name": o.Name}, "spec": spec,
	})
}

// declared is the node without an endpoint that it found itself.
func declared(n kilo.Node) kilo.Node {
	if !n.Declared {
		n.Endpoint = kilo.Node{}.Endpoint
	}
	return n
}

// said reports whether the spec says anything.
func said(s v1alpha1.MeshNodeSpec) bool {
	return s.Location != nil || s.Leader || s.Endpoint != "" || len(s.InternalIPs) > 0 || s.PersistentKeepalive != 0 || len(s.ExtraPrefixes) > 0
}

func (m *migration) peer(o *kiloPeer) {
	p, problems := o.read()
	m.problems = append(m.problems, problems...)
	if !p.Ready() {
		return
	}
	fact := p.Fact(mesh.Identity{})
	spec := v1alpha1.PeerSpec{
		PublicKey: fact.PublicKey.String(), AllowedIPs: texts(fact.AllowedIPs), Endpoint: fact.Endpoint.String(),
		PersistentKeepalive: int32(fact.PersistentKeepalive.Seconds()),
	}
	if psk := strings.TrimSpace(o.Spec.PresharedKey); psk != "" {
		spec.PresharedKey = &v1alpha1.SecretKey{Name: o.Name, Key: defaultSecretKey}
		m.write(map[string]any{
			"apiVersion": "v1", "kind": "Secret",
			"metadata":   map[string]any{"name": o.Name, "namespace": m.namespace, "labels": map[string]string{SecretLabel: ""}},
			"stringData": map[string]string{defaultSecretKey: psk},
		})
	}
	m.write(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Peer",
		"metadata": map[string]any{"name": o.Name}, "spec": spec,
	})
}

func (m *migration) write(o any) {
	text, err := yaml.Marshal(o)
	if err != nil {
		m.err = fmt.Errorf("write a manifest: %w", err)
		return
	}
	if m.text.Len() > 0 {
		m.text.WriteString("---\n")
	}
	m.text.Write(text)
}
