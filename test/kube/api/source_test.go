//go:build linux

package api

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// listener runs a source and keeps what it says, as an agent's store does.
type listener struct {
	*mesh.Store
	source *kube.Source
	client *kube.Client
	mu     sync.Mutex
	last   mesh.Update
	told   int
}

// listen runs a source with the rights of a configuration until the test ends.
func listen(t *testing.T, config *rest.Config, o kube.SourceOptions) *listener {
	t.Helper()
	client := as(t, config)
	source, err := kube.NewSource(client, o)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{Store: mesh.NewStore(), source: source, client: client}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = source.Run(ctx, l.put) // always nil
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return l
}

func (l *listener) put(u mesh.Update) {
	l.Put(u)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.told = u, l.told+1
}

func (l *listener) update() mesh.Update {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// node is what the store holds of a node.
func (l *listener) node(name string) (mesh.Node, error) {
	s, _ := l.Snapshot()
	i := slices.IndexFunc(s.Nodes, func(n mesh.Node) bool { return n.Name == name })
	if i < 0 {
		return mesh.Node{}, fmt.Errorf("node %s is not known", name)
	}
	return s.Nodes[i], nil
}

// problem is the first problem about an object.
func (l *listener) problem(kind mesh.Kind, name string) (mesh.Problem, error) {
	_, problems := l.Snapshot()
	for _, p := range problems {
		if p.Subject.Kind == kind && (name == "" || p.Subject.Name == name) {
			return p, nil
		}
	}
	return mesh.Problem{}, fmt.Errorf("no problem about %s %s among %v", kind, name, problems)
}

func publicKey(n byte) device.PublicKey {
	k := device.PublicKey{31: 1}
	k[0] = n
	return k
}

// What an agent publishes is what another reads, once the Node and the MeshNode are taken together.
func TestWhatOneAgentPublishesAnotherReads(t *testing.T) {
	const name = "source-a"
	publisher := listen(t, agentOf(t, shared, name), kube.SourceOptions{})
	reader := listen(t, agentOf(t, shared, "source-b"), kube.SourceOptions{})
	shared.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: source-a, labels: {topology.kubernetes.io/region: berlin}}\nspec: {podCIDR: 10.42.7.0/24, podCIDRs: [10.42.7.0/24]}\n")
	want := mesh.NodeStatus{
		PublicKey: publicKey(1), Mode: mesh.TUN, ListenPort: 51820,
		InternalIPs:   []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")},
		Endpoints:     []netip.AddrPort{netip.MustParseAddrPort("192.0.2.7:51820")},
		MeshAddresses: []netip.Addr{netip.MustParseAddr("10.4.0.7")},
		Learned:       map[device.PublicKey]netip.AddrPort{publicKey(2): netip.MustParseAddrPort("198.51.100.1:4000")},
		Leads:         3, Unreachable: []string{"source-z"},
	}
	await(t, 30*time.Second, func() error {
		if !publisher.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	p := kube.NewPublisher(publisher.client, publisher.source)
	for _, status := range []mesh.NodeStatus{{PublicKey: publicKey(9), Leads: 1, Unreachable: []string{"x"}}, want} {
		if err := p.Publish(t.Context(), name, status); err != nil {
			t.Fatal(err)
		}
	}
	await(t, 20*time.Second, func() error {
		n, err := reader.node(name)
		if err != nil {
			return err
		}
		if got := fmt.Sprintf("%+v", n.Status); got != fmt.Sprintf("%+v", want) {
			return fmt.Errorf("status is %s\nwant %+v", got, want)
		}
		if n.Spec.Location != "berlin" || fmt.Sprint(n.PodCIDRs) != "[10.42.7.0/24]" || n.Created.IsZero() {
			return fmt.Errorf("node is %+v", n)
		}
		return nil
	})
	// What is not said any more is gone, and nobody else's part is touched.
	if err := p.Publish(t.Context(), name, mesh.NodeStatus{PublicKey: publicKey(1)}); err != nil {
		t.Fatal(err)
	}
	await(t, 20*time.Second, func() error {
		n, err := reader.node(name)
		if err == nil && (n.Status.Leads != 0 || len(n.Status.Learned) > 0 || len(n.Status.MeshAddresses) > 0) {
			return fmt.Errorf("status is still %+v", n.Status)
		}
		return err
	})
	out, _, err := shared.Kubectl(t, "get", "meshnode", name, "-o", "jsonpath={.metadata.ownerReferences[0].kind} {.metadata.ownerReferences[0].name}")
	if err != nil || out != "Node source-a" {
		t.Errorf("the owner is %q, %v", out, err)
	}
	// The Node goes, and its MeshNode with it.
	if _, _, err := shared.Kubectl(t, "delete", "node", name); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, func() error {
		if _, err := reader.node(name); err == nil {
			return errors.New("the node is still known")
		}
		return nil
	})
}

func TestPeersAndTheirPresharedKeys(t *testing.T) {
	l := listen(t, agentOf(t, shared, "source-peers"), kube.SourceOptions{})
	shared.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: psk}\nspec: {publicKey: %s, allowedIPs: [10.9.0.0/24, 10.9.1.7/24], presharedKey: {name: psk}}\n", v1alpha1.GroupVersion(), goodKey))
	await(t, 20*time.Second, func() error {
		p, err := l.problem(mesh.KindPeer, "psk")
		if err == nil && (p.Field != "spec.presharedKey" || !strings.Contains(p.Remedy, kube.SecretLabel)) {
			return fmt.Errorf("problem is %+v", p)
		}
		return err
	})
	secret := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: psk, namespace: stillwire, labels: {%s: \"\"}}\nstringData: {presharedKey: %q}\n", kube.SecretLabel, value)
	}
	shared.Apply(t, secret("no key"))
	await(t, 20*time.Second, func() error {
		p, err := l.problem(mesh.KindPeer, "psk")
		if err == nil && !strings.Contains(p.Detail, "is no WireGuard key") {
			return fmt.Errorf("problem is %+v", p)
		}
		return err
	})
	shared.Apply(t, secret(goodKey+"\n"))
	await(t, 20*time.Second, func() error {
		s, problems := l.Snapshot()
		i := slices.IndexFunc(s.Peers, func(p mesh.Peer) bool { return p.Name == "psk" })
		if i < 0 || s.Peers[i].PresharedKey.IsZero() || fmt.Sprint(s.Peers[i].AllowedIPs) != "[10.9.0.0/24 10.9.1.0/24]" {
			return fmt.Errorf("peers are %v, problems %v", s.Peers, problems)
		}
		return nil
	})
	if _, _, err := shared.Kubectl(t, "delete", "peers.stillwire.dev/psk"); err != nil {
		t.Error(err)
	}
}

func TestSettingsAreFollowedAndABadOneChangesNothing(t *testing.T) {
	l := listen(t, agentOf(t, shared, "source-settings"), kube.SourceOptions{})
	config := func(data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stillwire, namespace: stillwire}\ndata: {" + data + "}\n"
	}
	shared.Apply(t, config("topology: location, subnets: '10.5.0.0/16, fd00:5::/64', ignoreInternalIPs: 'true'"))
	settled := func(want string) func() error {
		return func() error {
			s, _ := l.Snapshot()
			if got := fmt.Sprint(s.Settings.Topology, s.Settings.Subnets, s.Settings.IgnoreInternalIPs); got != want {
				return fmt.Errorf("settings are %s, want %s", got, want)
			}
			return nil
		}
	}
	await(t, 20*time.Second, settled("location[10.5.0.0/16 fd00:5::/64] true"))
	shared.Apply(t, config("topology: locaton, subnets: 10.6.0.0/16, inside: native, ignoreInternalIPs: ''"))
	await(t, 20*time.Second, func() error {
		p, err := l.problem(mesh.KindMesh, "")
		if err == nil && (p.Field != "data.topology" || p.Remedy != "write location" || p.Value != "locaton") {
			return fmt.Errorf("problem is %+v", p)
		}
		return err
	})
	if err := settled("location[10.5.0.0/16 fd00:5::/64] true")(); err != nil {
		t.Error(err)
	}
	if _, _, err := shared.Kubectl(t, "-n", "stillwire", "delete", "configmap", "stillwire"); err != nil {
		t.Fatal(err)
	}
	await(t, 20*time.Second, settled("[] false"))
}

// Without rights, definitions or the API server nothing is known to be gone, and why is said.
func TestAClusterThatCannotBeAskedIsDownAndSaysWhy(t *testing.T) {
	stranger, err := shared.ServiceAccountToken(t.Context(), "rights", "stranger")
	if err != nil {
		t.Fatal(err)
	}
	unknown := rest.CopyConfig(shared.Admin())
	unknown.CertData, unknown.KeyData, unknown.BearerToken = nil, nil, "nonsense"
	unknown.CertFile, unknown.KeyFile = "", ""
	nobody := rest.CopyConfig(shared.Admin())
	nobody.Host = "https://127.0.0.1:1"
	for _, tt := range []struct {
		name, want string
		config     *rest.Config
	}{
		{"no rights", "apply the cluster role", stranger},
		{"a token that is none", "token or certificate has run out", unknown},
		{"nobody there", "connection refused", nobody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := listen(t, tt.config, kube.SourceOptions{})
			await(t, 30*time.Second, func() error {
				if down := l.update().Down; !strings.Contains(down, tt.want) {
					return fmt.Errorf("down is %q, want %q", down, tt.want)
				}
				return nil
			})
		})
	}
}

// A file says which cluster it was: another is not believed, also after a restart.
func TestAnotherClusterIsNotBelieved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster")
	config := agentOf(t, shared, "source-cluster")
	l := listen(t, config, kube.SourceOptions{ClusterFile: path})
	await(t, 20*time.Second, func() error {
		if !l.Synced() {
			return errors.New("not synced")
		}
		return nil
	})
	other := startCluster(t)
	texts, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	other.Apply(t, texts...)
	again := listen(t, agentOf(t, other, "source-cluster"), kube.SourceOptions{ClusterFile: path})
	await(t, 30*time.Second, func() error {
		if down := again.update().Down; !strings.Contains(down, "another cluster answers") || !strings.Contains(down, "remove "+path) {
			return fmt.Errorf("down is %q", down)
		}
		return nil
	})
	if again.Synced() {
		t.Error("the other cluster was believed")
	}
}

func mustKey(t *testing.T, text string) device.PublicKey {
	t.Helper()
	k, err := device.ParsePublicKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
