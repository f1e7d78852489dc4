package file

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key is the public key that is told from others by its first byte.
func key(b byte) device.PublicKey { return device.PublicKey{b, 31: 1} }

// meaning compares what updates mean: where objects stand is not part of it.
func meaning() cmp.Options {
	return cmp.Options{
		cmpopts.EquateEmpty(),
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{}),
		cmpopts.IgnoreFields(mesh.Identity{}, "Source"),
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// running is a Source that runs, and its updates.
type running struct {
	*Source
	t       *testing.T
	updates chan mesh.Update
	stop    func()
}

func start(t *testing.T, s *Source) *running {
	t.Helper()
	r := &running{Source: s, t: t, updates: make(chan mesh.Update, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, func(u mesh.Update) { r.updates <- u }) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// next waits for the next update that is no mere confirmation.
func (r *running) next() mesh.Update {
	r.t.Helper()
	for {
		u := r.any()
		if !u.Confirmed {
			return u
		}
	}
}

func (r *running) any() mesh.Update {
	r.t.Helper()
	select {
	case u := <-r.updates:
		return u
	case <-time.After(20 * time.Second):
		r.t.Fatal("no update came")
	}
	return mesh.Update{}
}

// until waits for an update that is as wanted.
func (r *running) until(what string, ok func(mesh.Update) bool) mesh.Update {
	r.t.Helper()
	for {
		u := r.any()
		if ok(u) {
			return u
		}
		r.t.Logf("waiting for %s, not yet: %.200s", what, fmt.Sprint(nodeNames(u), peerNames(u), u.Problems, u.Down))
	}
}

func nodeNames(u mesh.Update) (names []string) {
	for _, n := range u.Nodes {
		names = append(names, n.Name)
	}
	return names
}

func peerNames(u mesh.Update) (names []string) {
	for _, p := range u.Peers {
		names = append(names, p.Name)
	}
	return names
}

func node(name, spec string) string {
	return "apiVersion: stillwire.dev/v1alpha1\nkind: MeshNode\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
}

func status(name, text string) string {
	return "apiVersion: stillwire.dev/v1alpha1\nkind: MeshNode\nmetadata: {name: " + name + "}\nstatus: {" + text + "}\n"
}

func TestPublishedStatusIsSeenByAll(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/nodes.yaml", node("a", "location: berlin"))
	r := start(t, New(Options{Dir: dir}))
	if got := nodeNames(r.next()); !cmp.Equal(got, []string{"a"}) {
		t.Fatalf("nodes %v, want a alone", got)
	}
	want := mesh.NodeStatus{
		PublicKey:     key(1),
		Mode:          mesh.Netstack,
		ListenPort:    51820,
		InternalIPs:   []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Endpoints:     []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:51820")},
		MeshAddresses: []netip.Addr{netip.MustParseAddr("10.4.0.1")},
		Learned:       map[device.PublicKey]netip.AddrPort{key(2): netip.MustParseAddrPort("192.0.2.7:1234")},
		Leads:         3,
		Unreachable:   []string{"b"},
	}
	must(t, r.Publish(t.Context(), "a", want), r.Publish(t.Context(), "b", mesh.NodeStatus{PublicKey: key(2)}))
	u := r.until("both", func(u mesh.Update) bool { return len(u.Nodes) == 2 && u.Nodes[0].Status.Leads == 3 })
	if diff := cmp.Diff([]mesh.Node{
		{Identity: mesh.Identity{Name: "a"}, Spec: mesh.NodeSpec{Location: "berlin"}, Status: want},
		{Identity: mesh.Identity{Name: "b", Undeclared: true}, Status: mesh.NodeStatus{PublicKey: key(2)}},
	}, u.Nodes, meaning()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if len(u.Problems) > 0 || !u.Synced {
		t.Errorf("synced %v, problems %v", u.Synced, u.Problems)
	}
}
