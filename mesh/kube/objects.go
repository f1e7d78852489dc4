package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/kilo"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
	"github.com/stillwire/stillwire/mesh/scan"
)

// maxObjects is how many bytes of objects are read: 10,000 nodes have about 100 MB.
const maxObjects = 256 << 20

// ReadOptions say how objects are read.
type ReadOptions struct {
	// LocationLabel of Nodes; "": DefaultLocationLabel.
	LocationLabel string
	// Kilo reads Kilo's annotations of Nodes and its Peers as well: a Node that has them is a member
	// without a MeshNode.
	Kilo bool
}

// Read reads objects as kubectl get nodes,meshnodes,peers -o yaml (or json) prints them, or as files
// that are to be applied hold them. The name stands in problems. Objects of other kinds are named as
// problems and left out. The error is that of r, or of text that is no YAML, with its place.
func Read(name string, r io.Reader, o ReadOptions) (mesh.Update, error) {
	if o.LocationLabel == "" {
		o.LocationLabel = DefaultLocationLabel
		if o.Kilo {
			o.LocationLabel = kilo.DefaultLocationLabel
		}
	}
	objects, err := readObjects(name, r)
	if err != nil {
		return mesh.Update{}, err
	}
	return objects.update(o), nil
}

// readObjects reads all that is of a mesh, ours or Kilo's.
func readObjects(name string, r io.Reader) (*objectSet, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxObjects+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(text) > maxObjects:
		return nil, fmt.Errorf("read %s: it is larger than %d bytes", name, maxObjects)
	}
	objects := &objectSet{file: name, nodes: make(map[string]*corev1.Node), secrets: make(map[string]*corev1.Secret)}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for n := 1; ; n++ {
		var raw runtime.RawExtension
		switch err := d.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: document %d is neither YAML nor JSON: %s", name, n, scan.OneLine(err.Error()))
		}
		if raw = bytesOf(raw); len(raw.Raw) > 0 {
			objects.take(raw.Raw)
		}
	}
}

// bytesOf is nothing for an empty document.
func bytesOf(raw runtime.RawExtension) runtime.RawExtension {
	if raw.Raw = bytes.TrimSpace(raw.Raw); string(raw.Raw) == "null" {
		raw.Raw = nil
	}
	return raw
}

// objectSet is what was read, by kind.
type objectSet struct {
	file      string
	nodes     map[string]*corev1.Node
	meshNodes []*v1alpha1.MeshNode
	peers     []*v1alpha1.Peer
	kiloPeers []kiloPeer
	secrets   map[string]*corev1.Secret
	problems  []mesh.Problem
}

// kiloPeer is a Peer of kilo.squat.ai/v1alpha1.
type kiloPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              kiloPeerSpec `json:"spec"`
}

// kiloPeerSpec has the preshared key as Kilo has it: in the object itself.
type kiloPeerSpec struct {
	kilo.PeerSpec `json:",inline"`
	PresharedKey  string `json:"presharedKey,omitempty"`
}

// read makes a peer of the object. A preshared key that is none costs the peer: without it there would
// be a tunnel that is weaker than was asked for.
func (o *kiloPeer) read() (kilo.Peer, []mesh.Problem) {
	var fault []mesh.Problem
	spec := o.Spec.PeerSpec
	if text := strings.TrimSpace(o.Spec.PresharedKey); text != "" {
		key, err := device.ParsePresharedKey(text)
		if err != nil {
			fault = append(fault, mesh.Problem{
				Subject: mesh.Subject{Kind: mesh.KindPeer, Name: o.Name, Source: "peers.kilo.squat.ai/" + o.Name}, Field: "spec.presharedKey",
				Reason: mesh.Invalid, Detail: "is no WireGuard key, so the peer is left out", Remedy: "put the output of wg genpsk there",
			})
			return kilo.Peer{}, fault
		}
		spec.PresharedKey = key
	}
	return kilo.ReadPeer(kilo.PeerObject{Name: o.Name, Spec: spec})
}

// take reads one object, or those of a List.
func (s *objectSet) take(raw []byte) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Items []runtime.RawExtension `json:"items"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		s.refuse("", "", "", "is no object: "+err.Error(), "begin each document with apiVersion, kind and metadata")
		return
	}
	switch head.APIVersion + " " + head.Kind {
	case "v1 Node":
		if n, ok := decode(s, head.Metadata.Name, raw, &corev1.Node{}); ok {
			s.nodes[n.Name] = n
		}
	case v1alpha1.GroupVersion().String() + " MeshNode":
		if n, ok := decode(s, head.Metadata.Name, raw, &v1alpha1.MeshNode{}); ok {
			s.meshNodes = append(s.meshNodes, n)
		}
	case v1alpha1.GroupVersion().String() + " Peer":
		if p, ok := decode(s, head.Metadata.Name, raw, &v1alpha1.Peer{}); ok {
			s.peers = append(s.peers, p)
		}
	case "kilo.squat.ai/v1alpha1 Peer":
		if p, ok := decode(s, head.Metadata.Name, raw, &kiloPeer{}); ok {
			s.kiloPeers = append(s.kiloPeers, *p)
		}
	case "v1 Secret":
		if x, ok := decode(s, head.Metadata.Name, raw, &corev1.Secret{}); ok {
			for key, text := range x.StringData { // as the API server does
				if x.Data == nil {
					x.Data = make(map[string][]byte)
				}
				x.Data[key] = []byte(text)
			}
			s.secrets[x.Name] = x
		}
	default:
		if !strings.HasSuffix(head.Kind, "List") {
			s.refuse(head.Metadata.Name, "kind", head.APIVersion+" "+head.Kind, "is not of a mesh, it is left out", "give Nodes, MeshNodes and Peers")
			return
		}
		for _, item := range head.Items {
			s.take(item.Raw)
		}
	}
}

// decode reads an object of a known kind. A field that it does not have is named and passed over.
func decode[T any](s *objectSet, name string, raw []byte, into T) (T, bool) {
	strict, err := json.UnmarshalStrict(raw, into)
	if err != nil {
		s.refuse(name, "", "", "cannot be read, it is left out: "+err.Error(), "mend the field")
		return into, false
	}
	for _, e := range strict {
		s.refuse(name, "", "", "has a field that is not obeyed: "+e.Error(), "remove it, or see how it is written")
	}
	return into, true
}

func (s *objectSet) refuse(name, field, value, detail, remedy string) {
	source := s.file
	if name != "" {
		source += ": " + scan.Shown(name)
	}
	s.problems = append(s.problems, mesh.Problem{
		Subject: mesh.Subject{Kind: mesh.KindSource, Name: s.file, Source: source},
		Field:   field, Value: scan.Shown(value), Reason: mesh.Invalid, Detail: scan.OneLine(detail), Remedy: remedy,
	})
}

// update makes facts of the objects.
func (s *objectSet) update(o ReadOptions) mesh.Update {
	u := mesh.Update{Source: sourceName, Synced: true, Problems: s.problems}
	for _, m := range s.meshNodes {
		n, problems := readNode(m, s.nodes[m.Name], o.LocationLabel)
		u.Nodes, u.Problems = append(u.Nodes, n), append(u.Problems, problems...)
	}
	for _, p := range s.peers {
		peer, ok, problems := readPeer(p, func(name string) *corev1.Secret { return s.secrets[name] })
		if ok {
			u.Peers = append(u.Peers, peer)
		}
		u.Problems = append(u.Problems, problems...)
	}
	if o.Kilo {
		s.kilo(&u, o.LocationLabel)
	} else if len(s.kiloPeers) > 0 {
		u.Problems = append(u.Problems, mesh.Problem{
			Subject: mesh.Subject{Kind: mesh.KindSource, Name: s.file, Source: s.file}, Field: "kind", Value: "kilo.squat.ai/v1alpha1 Peer",
			Reason: mesh.Invalid, Detail: "is Kilo's, it is left out", Remedy: "add --kilo to read Kilo's objects",
		})
	}
	return u
}

// kilo adds what Kilo's objects say of those that have none of ours.
func (s *objectSet) kilo(u *mesh.Update, label string) {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		has := func(m *v1alpha1.MeshNode) bool { return m.Name == n.Name }
		if slices.ContainsFunc(s.meshNodes, has) {
			continue
		}
		node, problems := kilo.ReadNode(kiloNode(n), label)
		fact := node.Fact(identity("node", &n.ObjectMeta))
		r := reading{subject: mesh.Subject{Kind: mesh.KindNode, Name: n.Name, Source: "node/" + n.Name}}
		r.clusterNode(&fact, n)
		u.Nodes = append(u.Nodes, fact)
		u.Problems = slices.Concat(u.Problems, problems, r.problems)
	}
	slices.SortFunc(u.Nodes, func(a, b mesh.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range s.kiloPeers {
		peer, problems := p.read()
		if peer.Ready() {
			u.Peers = append(u.Peers, peer.Fact(identity("peers.kilo.squat.ai", &p.ObjectMeta)))
		}
		u.Problems = append(u.Problems, problems...)
	}
}

func kiloNode(n *corev1.Node) kilo.NodeObject {
	cidr := n.Spec.PodCIDR
	if cidr == "" && len(n.Spec.PodCIDRs) > 0 {
		cidr = n.Spec.PodCIDRs[0]
	}
	return kilo.NodeObject{Name: n.Name, PodCIDR: cidr, Labels: n.Labels, Annotations: n.Annotations}
}
