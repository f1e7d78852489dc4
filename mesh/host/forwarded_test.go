//go:build linux

package host_test

import (
	"testing"

	"github.com/stillwire/stillwire/mesh"
)

// The neighbour on the LAN is a node, with its tunnel at its address there.
func TestOnlyPodsReachTheMachinesOfNodesByTheTunnel(t *testing.T) {
	r := newRig(t)
	for _, links := range []string{"all", "default"} { // as some distributions have it
		r.node.Sysctl("net/ipv4/conf/"+links+"/rp_filter", "1")
	}
	e := r.open()
	p := plan()
	for _, dst := range prefixes("192.0.2.2/32", "2001:db8::2/128") {
		p.Forwarded = append(p.Forwarded, mesh.Route{Dst: dst, Via: mesh.ViaTunnel, Member: "node b"})
		p.Firewall.Outer = append(p.Firewall.Outer, dst)
	}
	r.apply(p)
	wantChanges(t, r.apply(p))
	for _, way := range []seen{{addr("10.2.0.2"), addr("192.0.2.2")}, {addr("fd02::2"), addr("2001:db8::2")}} {
		if err := e.expectWhile(func() { e.echo(way.dst, way.src) }, way); err != nil {
			t.Errorf("a pod answers a node: %v", err)
		}
		if n, err := r.node.Ping(way.dst, 3, 64); n != 3 {
			t.Errorf("%d of 3 pings of the machine itself reach the node without the tunnel: %v", n, err)
		}
	}
	wantChanges(t, r.apply(plan()),
		`route 192.0.2.2/32 forwarded: "dev stillwire0" -> "" `,
		`route 192.0.2.2/32 forwarded, beneath: "unreachable" -> "" `,
		`route 2001:db8::2/128 forwarded: "dev stillwire0" -> "" `,
		`route 2001:db8::2/128 forwarded, beneath: "unreachable" -> "" `,
		`set outer4: "192.0.2.2/32" -> "" `,
		`set outer6: "2001:db8::2/128" -> "" `,
	)
	const spoofed = "unknown source out of the tunnel, IPv4"
	before := r.dropped(spoofed)
	e.echo(addr("192.0.2.2"), addr("10.2.0.2"))
	if err := r.awaitDrop(spoofed, before); err != nil {
		t.Error(err)
	}
}
