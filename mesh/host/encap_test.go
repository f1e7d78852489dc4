//go:build linux

package host_test

import (
	"strings"
	"testing"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

// neighbours are two nodes of one location: the rig's, and lan with a pod on its loopback.
func neighbours(via mesh.Via) (node, lan mesh.HostPlan) {
	node, lan = plan(), mesh.HostPlan{Addresses: prefixes("10.4.0.3/32", "fd04::3/128")}
	for _, dst := range prefixes("10.2.3.0/24", "10.4.0.3/32", "fd02:0:0:3::/64") {
		r := mesh.Route{Dst: dst, Via: via, Gateway: addr("192.0.2.2"), Src: addr("10.4.0.1"), Member: "node lan"}
		if dst.Addr().Is6() {
			r.Gateway, r.Src = addr("2001:db8::2"), addr("fd04::1")
		}
		node.Routes = append(node.Routes, r)
		node.Firewall.Native = append(node.Firewall.Native, dst)
	}
	for _, dst := range prefixes("10.2.0.0/24", "10.4.0.1/32", "fd02::/64", "fd04::1/128") {
		r := mesh.Route{Dst: dst, Via: via, Gateway: addr("192.0.2.1"), Src: addr("10.4.0.3"), Member: "node node"}
		if dst.Addr().Is6() {
			r.Gateway, r.Src = addr("2001:db8::1"), addr("fd04::3")
		}
		lan.Routes = append(lan.Routes, r)
		lan.Firewall.Native = append(lan.Firewall.Native, dst)
	}
	// The source of outer packets is the kernel's choice of lan's two addresses.
	node.Firewall.Neighbours = append(node.Firewall.Neighbours, prefixes("2001:db8::fe/128")...)
	lan.Firewall.Local = prefixes("10.2.3.0/24", "10.4.0.3/32", "fd02:0:0:3::/64", "fd04::3/128")
	lan.Firewall.Neighbours = prefixes("192.0.2.1/32", "2001:db8::1/128")
	return node, lan
}

func TestNeighboursReachEachOtherWithoutATunnel(t *testing.T) {
	for _, via := range []mesh.Via{mesh.ViaNative, mesh.ViaEncapsulated} {
		t.Run(string(via), func(t *testing.T) {
			r := newRig(t)
			before := dump(t, r.node)
			r.lan.IP("addr add 10.2.3.1/32 dev lo", "addr add fd02:0:0:3::1/128 dev lo")
			node, lan := neighbours(via)
			there, err := host.New(host.Options{StateDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			err = r.lan.Do(func() error { _, _, err := there.Apply(t.Context(), lan); return err })
			if err != nil {
				t.Fatal(err)
			}
			r.lan.NFT("add table inet count", "add chain inet count in { type filter hook prerouting priority -500 ; }",
				"add rule inet count in iifname node ip daddr { 10.2.3.0/24, 10.4.0.3 } counter", "add rule inet count in iifname node ip6 daddr fd02:0:0:3::/64 counter")
			r.apply(node)
			wantChanges(t, r.apply(node))
			for _, dst := range []string{"10.2.3.1", "10.4.0.3", "fd02:0:0:3::1"} {
				if _, err := r.node.Ping(addr(dst), 1, 1300); err != nil {
					t.Errorf("from the node: %v", err)
				}
				if _, err := r.pod.Ping(addr(dst), 1, 1300); err != nil {
					t.Errorf("from a pod: %v", err)
				}
			}
			bare := strings.Count(output(t, r.lan, "nft", "list", "table", "inet", "count"), "packets 0 ") == 0
			if bare != (via == mesh.ViaNative) {
				t.Errorf("seen as they are: %v:\n%s", bare, output(t, r.lan, "nft", "list", "table", "inet", "count"))
			}
			r.apply(plan()) // the link for it goes when no route needs it
			if out, err := r.tryRun("ip", "link", "show", "dev", "stillwire0-e"); err == nil {
				t.Errorf("left: %s", out)
			}
			r.apply(node)
			r.uninstall()
			if after := dump(t, r.node); after != before {
				t.Errorf("uninstall left something behind")
			}
		})
	}
}

func TestEncapsulatedPacketsOfStrangersAreDropped(t *testing.T) {
	r := newRig(t)
	node, lan := neighbours(mesh.ViaEncapsulated)
	node.Firewall.Neighbours = prefixes("192.0.2.99/32")
	there, err := host.New(host.Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	err = r.lan.Do(func() error { _, _, err := there.Apply(t.Context(), lan); return err })
	if err != nil {
		t.Fatal(err)
	}
	r.apply(node)
	send(t, r.lan, addr("10.2.0.2"), 1)
	if err := r.awaitDrop("what is encapsulated comes from neighbours, IPv4", 0); err != nil {
		t.Error(err)
	}
}

func TestEncapsulationThatTheKernelLacksIsNamed(t *testing.T) {
	for _, kind := range []mesh.Encapsulation{mesh.Geneve, mesh.IPIP} {
		r := newRig(t, func(o *host.Options) { o.Encapsulation = kind })
		node, _ := neighbours(mesh.ViaEncapsulated)
		_, problems, err := r.try(node)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		var named bool
		for _, p := range problems {
			named = named || p.Field == "encapsulation" && p.Reason == mesh.Unsupported && strings.Contains(p.Detail, string(kind))
		}
		if !named {
			t.Errorf("%s: problems %v", kind, problems)
		}
		for _, want := range []string{"10.2.1.0/24 dev stillwire0 ", "unreachable 10.2.3.0/24 "} {
			if got := r.run("ip", "route", "show", "table", "7107"); !strings.Contains(got, want) {
				t.Errorf("%s: no route %q:\n%s", kind, want, got)
			}
		}
	}
}

func TestNativeGatewayOfTheOtherFamily(t *testing.T) {
	r := newRig(t)
	p := plan()
	p.Routes = append(p.Routes,
		mesh.Route{Dst: prefixes("10.2.8.0/24")[0], Via: mesh.ViaNative, Gateway: addr("2001:db8::2"), Member: "node six"},
		mesh.Route{Dst: prefixes("10.2.9.0/24")[0], Via: mesh.ViaNative, Gateway: addr("203.0.113.5"), Member: "node far"},
		mesh.Route{Dst: prefixes("fd02:0:0:9::/64")[0], Via: mesh.ViaNative, Gateway: addr("192.0.2.2"), Member: "node four"})
	_, problems, err := r.try(p)
	if err != nil || len(problems) != 1 || problems[0].Reason != mesh.Unsupported || problems[0].Value != "fd02:0:0:9::/64" {
		t.Errorf("problems %v, error %v", problems, err)
	}
	changes, _, err := r.try(p)
	wantChanges(t, changes)
	got := r.run("ip", "route", "show", "table", "7107")
	for _, want := range []string{"10.2.8.0/24 via inet6 2001:db8::2 dev lan proto 107", "10.2.9.0/24 via 203.0.113.5 dev lan proto 107 onlink"} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("no route %q: %v\n%s", want, err, got)
		}
	}
}
