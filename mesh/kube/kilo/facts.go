package kilo

import (
	"net/netip"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// longestKeepalive is what a device takes.
const longestKeepalive = 65535 * time.Second

// Fact is the node as the planner of a mesh without Kilo's agents has it: what the administrator
// says is its spec, what the agent wrote its status. Its mesh address is not taken over, as Kilo
// gives it by rank.
func (n Node) Fact(id mesh.Identity) mesh.Node {
	f := mesh.Node{Identity: id}
	f.Spec = mesh.NodeSpec{
		Location: n.Location, Leader: n.Leader, NoInternalIP: n.Internal == None,
		PersistentKeepalive: sane(n.PersistentKeepalive), ExtraPrefixes: masked(n.AllowedLocationIPs),
	}
	f.Status.PublicKey = n.Key
	if n.Declared {
		f.Spec.Endpoint = n.Endpoint
	} else if a, ok := n.Endpoint.AddrPort(); ok {
		f.Status.Endpoints = []netip.AddrPort{a}
	}
	f.Status.ListenPort = n.Endpoint.Port
	switch {
	case !n.InternalIP.IsValid():
	case n.Internal == Declared:
		f.Spec.InternalIPs = []netip.Addr{n.InternalIP.Addr()}
	default:
		f.Status.InternalIPs = []netip.Addr{n.InternalIP.Addr()}
	}
	if n.PodCIDR.IsValid() {
		f.PodCIDRs = []netip.Prefix{n.PodCIDR}
	}
	for k, e := range n.Discovered {
		if a, ok := e.AddrPort(); ok {
			if f.Status.Learned == nil {
				f.Status.Learned = make(map[device.PublicKey]netip.AddrPort)
			}
			f.Status.Learned[k] = a
		}
	}
	return f
}

// Fact is the peer as the planner has it.
func (p Peer) Fact(id mesh.Identity) mesh.Peer {
	return mesh.Peer{
		Identity: id, PublicKey: p.Key, PresharedKey: p.PresharedKey, Endpoint: p.Endpoint,
		PersistentKeepalive: sane(p.PersistentKeepalive), AllowedIPs: masked(p.AllowedIPs),
	}
}

// sane is none for what no device takes.
func sane(keepalive time.Duration) time.Duration {
	if keepalive < 0 || keepalive > longestKeepalive {
		return 0
	}
	return keepalive
}

func masked(list []netip.Prefix) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, p.Masked())
	}
	return out
}
