//go:build linux

package host_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
	"github.com/stillwire/stillwire/test/netns"
)

func TestMain(m *testing.M) {
	// The parallel tests wait for what must not happen. More at once would be late on two CPUs.
	flag.Parse()
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var _ mesh.Host = (*host.Host)(nil)

// A machine, what is on its pod bridge, its neighbour, and the world behind a router:
//
//	pod 10.2.0.2 ── node ── lan 192.0.2.2
//	                 10.2.0.1   192.0.2.1/24, default via 192.0.2.254
type rig struct {
	t        *testing.T
	node     *netns.Namespace
	pod, lan *netns.Namespace
	options  host.Options
	host     *host.Host
	lab      *netns.Lab
	stateDir string
}

func newRig(t *testing.T, edit ...func(*host.Options)) *rig {
	t.Helper()
	lab := netns.NewLab(t)
	r := &rig{t: t, lab: lab, node: lab.Namespace("node"), pod: lab.Namespace("pod"), lan: lab.Namespace("lan"), stateDir: t.TempDir()}
	lab.Connect(r.node, r.pod)
	lab.Connect(r.node, r.lan)
	r.node.AddAddrs("pod", "10.2.0.1/24", "fd02::1/64")
	r.pod.AddAddrs("node", "10.2.0.2/24", "fd02::2/64")
	r.node.AddAddrs("lan", "192.0.2.1/24", "2001:db8::1/64")
	r.lan.AddAddrs("node", "192.0.2.2/24", "2001:db8::2/64", "192.0.2.254/24", "2001:db8::fe/64", "198.51.100.9/32")
	r.node.IP("route add default via 192.0.2.254", "route add default via 2001:db8::fe")
	r.pod.IP("route add default via 10.2.0.1", "route add default via fd02::1")
	r.lan.IP("route add default via 192.0.2.1", "route add default via 2001:db8::1")
	r.options = host.Options{StateDir: r.stateDir}
	for _, e := range edit {
		e(&r.options)
	}
	r.host = r.restarted()
	return r
}

// restarted is a host that knows nothing of the one before.
func (r *rig) restarted() *host.Host {
	r.t.Helper()
	h, err := host.New(r.options)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// plan is one of a node with two remote prefixes of each family behind the tunnel.
func plan() mesh.HostPlan {
	src4, src6 := netip.MustParseAddr("10.4.0.1"), netip.MustParseAddr("fd04::1")
	p := mesh.HostPlan{ListenPort: 51820, Addresses: prefixes("10.4.0.1/32", "fd04::1/128")}
	for _, dst := range prefixes("10.2.1.0/24", "10.4.0.2/32", "fd02:0:0:1::/64", "fd04::2/128") {
		src := src4
		if dst.Addr().Is6() {
			src = src6
		}
		p.Routes = append(p.Routes, mesh.Route{Dst: dst, Via: mesh.ViaTunnel, Src: src, Member: "node b"})
		p.Firewall.Tunnelled = append(p.Firewall.Tunnelled, dst)
	}
	p.Firewall.Local = prefixes("10.2.0.0/24", "10.4.0.1/32", "fd02::/64", "fd04::1/128")
	p.Firewall.Pods = prefixes("10.2.0.0/24", "fd02::/64")
	p.Firewall.Inside = prefixes("10.2.0.0/16", "10.4.0.0/16", "10.96.0.0/12", "fd02::/48", "fd04::/64")
	p.Firewall.Neighbours = prefixes("192.0.2.2/32", "2001:db8::2/128")
	return p
}

// with adds a prefix behind the tunnel.
func with(p mesh.HostPlan, dst string) mesh.HostPlan {
	prefix := netip.MustParsePrefix(dst)
	p.Routes = append(slices.Clone(p.Routes), mesh.Route{Dst: prefix, Via: mesh.ViaTunnel, Member: "node c"})
	p.Firewall.Tunnelled = append(slices.Clone(p.Firewall.Tunnelled), prefix)
	return p
}

// try applies a plan in the namespace of the node.
func (r *rig) try(p mesh.HostPlan) (changes []mesh.HostChange, problems []mesh.Problem, err error) {
	err = r.node.Do(func() (err error) {
		changes, problems, err = r.host.Apply(r.t.Context(), p)
		return err
	})
	return changes, problems, err
}

// apply wants no problem.
func (r *rig) apply(p mesh.HostPlan) []mesh.HostChange {
	r.t.Helper()
	changes, problems, err := r.try(p)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range problems {
		r.t.Errorf("problem: %v", p)
	}
	return changes
}

func (r *rig) uninstall() []mesh.HostChange {
	r.t.Helper()
	var changes []mesh.HostChange
	err := r.node.Do(func() (err error) {
		changes, err = host.Uninstall(r.t.Context(), r.options)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return changes
}

// run runs a command in the namespace of the node and returns what it prints.
func (r *rig) run(name string, args ...string) string {
	r.t.Helper()
	return output(r.t, r.node, name, args...)
}

func (r *rig) tryRun(name string, args ...string) (string, error) {
	return tryOutput(r.node, name, args...)
}

func tryOutput(in *netns.Namespace, name string, args ...string) (string, error) {
	cmd := exec.Command("/usr/sbin/"+name, args...)
	var out []byte
	err := in.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

func output(t *testing.T, in *netns.Namespace, name string, args ...string) string {
	t.Helper()
	out, err := tryOutput(in, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return out
}

// text is a change on one line.
func text(changes []mesh.HostChange) (lines []string) {
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s: %q -> %q %s", c.What, c.Name, c.Old, c.New, c.Cause))
	}
	return lines
}

func wantChanges(t *testing.T, got []mesh.HostChange, want ...string) {
	t.Helper()
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(want, text(got), sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
