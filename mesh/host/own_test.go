//go:build linux

package host_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stillwire/stillwire/mesh"
)

// ranged is the plan with the ranges of all nodes known, as an agent with --subnet and
// --cluster-cidr has it.
func ranged(p mesh.HostPlan) mesh.HostPlan {
	p.Firewall.Reserved = prefixes("10.2.0.0/16", "10.4.0.0/16", "fd02::/48", "fd04::/64")
	return p
}

// countOwn counts on the LAN what is for the pods of the node.
func (r *rig) countOwn() (count func() int) {
	r.lan.NFT("add table inet count", "add chain inet count in { type filter hook prerouting priority -500 ; }",
		"add rule inet count in ip daddr 10.2.0.0/24 counter drop", "add rule inet count in ip6 daddr fd02::/64 counter drop")
	return func() int {
		out := output(r.t, r.lan, "nft", "list", "table", "inet", "count")
		return strings.Count(out, "counter packets") - strings.Count(out, "packets 0 ")
	}
}

func TestOwnPrefixNeverLeavesByADefaultRoute(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(*rig)
		reached bool
	}{
		{"the link of the pods is up", func(*rig) {}, true},
		{"it is down", func(r *rig) { r.node.IP("link set pod down") }, false},
		{"there is none", func(r *rig) { r.node.IP("link del pod") }, false},
		{"each pod has a route", func(r *rig) {
			r.node.IP("addr del 10.2.0.1/24 dev pod", "addr del fd02::1/64 dev pod", "addr add 10.2.0.1/32 dev pod", "addr add fd02::1/128 dev pod",
				"route add 10.2.0.2/32 dev pod", "route add fd02::2/128 dev pod")
		}, true},
		{"the bridge is wider than the pods of the node", func(r *rig) {
			r.node.IP("addr del 10.2.0.1/24 dev pod", "addr del fd02::1/64 dev pod", "addr add 10.2.0.1/16 dev pod", "addr add fd02::1/48 dev pod")
		}, true},
	} {
		for ranges, edit := range map[string]func(mesh.HostPlan) mesh.HostPlan{
			"": func(p mesh.HostPlan) mesh.HostPlan { return p }, ", ranges known": ranged,
		} {
			t.Run(tt.name+ranges, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				e := r.open()
				tt.prepare(r)
				r.apply(edit(plan()))
				count := r.countOwn()
				for _, f := range []struct{ remote, mesh, pod, nobody string }{
					{"10.2.1.7", "10.4.0.1", "10.2.0.2", "10.2.0.9"}, {"fd02:0:0:1::7", "fd04::1", "fd02::2", "fd02::9"},
				} {
					if strings.HasPrefix(tt.name, "each pod") {
						e.echo(addr(f.remote), addr(f.nobody))
						send(t, r.node, addr(f.nobody), 3)
					}
					answer := seen{addr(f.mesh), addr(f.remote)} // that it is unreachable
					if tt.reached {
						answer.src = addr(f.pod)
					} else if refused := send(t, r.node, addr(f.pod), 3); refused != 3 {
						t.Errorf("to %s: %d of 3 refused", f.pod, refused)
					}
					if err := e.expectWhile(func() { e.echo(addr(f.remote), addr(f.pod)) }, answer); err != nil {
						t.Error(err)
					}
				}
				if _, err := r.node.Ping(addr("192.0.2.2"), 1, 8); err != nil {
					t.Error(err)
				}
				if n := count(); n != 0 {
					t.Errorf("%d of both families came in clear text", n)
				}
				wantChanges(t, r.apply(edit(plan())))
			})
		}
	}
}

// The machine keeps its way to a network that is not the mesh's own, though it serves it.
func TestExtraPrefixGoesWhereTheMachineSendsIt(t *testing.T) {
	r := newRig(t)
	p := ranged(plan())
	p.Firewall.Local = append(prefixes("198.51.100.0/24"), p.Firewall.Local...)
	r.apply(p)
	if _, err := r.node.Ping(addr("198.51.100.9"), 1, 8); err != nil {
		t.Error(err)
	}
}

func TestOwnPrefixStaysInWithADefaultRouteInTheTunnel(t *testing.T) {
	r := newRig(t)
	e := r.open()
	p := plan()
	p.Routes = []mesh.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: mesh.ViaTunnel, Src: addr("10.4.0.1")}}
	p.Firewall.Tunnelled = prefixes("0.0.0.0/0")
	r.node.IP("link set pod down")
	r.apply(p)
	count := r.countOwn()
	if refused := send(t, r.node, addr("10.2.0.2"), 3); refused != 3 {
		t.Errorf("%d of 3 refused", refused)
	}
	if err := e.expectWhile(func() { e.echo(addr("10.2.1.7"), addr("10.2.0.2")) }, seen{addr("10.4.0.1"), addr("10.2.1.7")}); err != nil {
		t.Error(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d came in clear text", n)
	}
}
