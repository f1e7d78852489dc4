package file

import (
	"fmt"
	"io"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stillwire/stillwire/mesh"
)

// WriteOption changes what Write writes.
type WriteOption string

// WithSecrets writes preshared keys too. Only for a file of mode 0600, which is also what Read
// and Load want of one that holds them.
const WithSecrets WriteOption = "secrets"

// document is an object as it stands in a file.
type document struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata,flow"`
	Spec       any      `yaml:"spec,omitempty"`
	Status     any      `yaml:"status,omitempty"`
}

type metadata struct {
	Name        string            `yaml:"name"`
	UID         string            `yaml:"uid,omitempty"`
	Created     string            `yaml:"creationTimestamp,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type nodeSpec struct {
	Location            string   `yaml:"location,omitempty"`
	Leader              bool     `yaml:"leader,omitempty"`
	Endpoint            string   `yaml:"endpoint,omitempty"`
	InternalIPs         []string `yaml:"internalIPs,omitempty,flow"`
	PersistentKeepalive int64    `yaml:"persistentKeepalive,omitempty"`
	ExtraPrefixes       []string `yaml:"extraPrefixes,omitempty,flow"`
	PodCIDRs            []string `yaml:"podCIDRs,omitempty,flow"`
	ListenPort          uint16   `yaml:"listenPort,omitempty"`
	MTU                 int      `yaml:"mtu,omitempty"`
	NodeIPs             []string `yaml:"nodeIPs,omitempty,flow"`
	NotReady            bool     `yaml:"notReady,omitempty"`
}

type nodeStatus struct {
	PublicKey     string    `yaml:"publicKey,omitempty"`
	Mode          string    `yaml:"mode,omitempty"`
	ListenPort    uint16    `yaml:"listenPort,omitempty"`
	InternalIPs   []string  `yaml:"internalIPs,omitempty,flow"`
	Endpoints     []string  `yaml:"endpoints,omitempty,flow"`
	MeshAddresses []string  `yaml:"meshAddresses,omitempty,flow"`
	Learned       []learned `yaml:"learned,omitempty"`
	Leads         uint64    `yaml:"leads,omitempty"`
	Unreachable   []string  `yaml:"unreachable,omitempty,flow"`
}

type learned struct {
	PublicKey string `yaml:"publicKey"`
	Endpoint  string `yaml:"endpoint"`
}

type peerSpec struct {
	PublicKey           string   `yaml:"publicKey,omitempty"`
	PresharedKey        string   `yaml:"presharedKey,omitempty"`
	Endpoint            string   `yaml:"endpoint,omitempty"`
	AllowedIPs          []string `yaml:"allowedIPs,omitempty,flow"`
	PersistentKeepalive int64    `yaml:"persistentKeepalive,omitempty"`
	MeshAddresses       []string `yaml:"meshAddresses,omitempty,flow"`
}

type meshSpec struct {
	Topology          string   `yaml:"topology,omitempty"`
	Inside            string   `yaml:"inside,omitempty"`
	Subnets           []string `yaml:"subnets,omitempty,flow"`
	ClusterCIDRs      []string `yaml:"clusterCIDRs,omitempty,flow"`
	ServiceCIDRs      []string `yaml:"serviceCIDRs,omitempty,flow"`
	IgnoreInternalIPs bool     `yaml:"ignoreInternalIPs,omitempty"`
	AllowDefaultRoute bool     `yaml:"allowDefaultRoute,omitempty"`
}

// Write writes the settings, nodes and peers of an update in their order, as Read reads them.
// Where objects stood before is not written, nor are problems. Preshared keys are left out,
// unless the options say otherwise: without them a file with such a peer says less than u.
func Write(w io.Writer, u mesh.Update, options ...WriteOption) error {
	e := newEncoder(w)
	if u.Settings != nil {
		e.write(kindMesh, mesh.Identity{Name: "default"}, settingsDocument(*u.Settings), nil)
	}
	for _, n := range u.Nodes {
		e.write(kindNode, n.Identity, specDocument(n), statusDocument(n.Status))
	}
	secrets := slices.Contains(options, WithSecrets)
	for _, p := range u.Peers {
		spec := peerDocument(p)
		if secrets && !p.PresharedKey.IsZero() {
			spec.PresharedKey = p.PresharedKey.Reveal()
		}
		e.write(kindPeer, p.Identity, spec, nil)
	}
	return e.close()
}

func writeStatus(w io.Writer, node string, status nodeStatus) error {
	e := newEncoder(w)
	e.write(kindNode, mesh.Identity{Name: node}, nil, status)
	return e.close()
}

// encoder writes documents until the first error.
type encoder struct {
	yaml *yaml.Encoder
	any  bool
	err  error
}

func newEncoder(w io.Writer) *encoder {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return &encoder{yaml: e}
}

func (e *encoder) write(kind string, id mesh.Identity, spec, status any) {
	if e.err != nil {
		return
	}
	meta := metadata{Name: id.Name, UID: id.UID}
	if !id.Created.IsZero() {
		meta.Created = id.Created.UTC().Format(time.RFC3339Nano)
	}
	if id.Undeclared {
		meta.Annotations = map[string]string{annotationUndeclared: "true"}
	}
	e.any = true
	e.err = e.yaml.Encode(document{apiVersion, kind, meta, orNothing(spec), orNothing(status)})
	if e.err != nil {
		e.err = fmt.Errorf("write %s %s: %w", kind, id.Name, e.err)
	}
}

func (e *encoder) close() error {
	if e.err != nil || !e.any {
		return e.err
	}
	return e.yaml.Close()
}
