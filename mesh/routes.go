package mesh

import (
	"net/netip"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// host is the machine around the device.
func (v view) host(c device.Config) HostPlan {
	h := HostPlan{
		MTU:        v.self.Spec.MTU,
		Addresses:  single(v.claimed.MeshAddresses),
		ListenPort: c.ListenPort,
	}
	if v.Settings.Inside != Native && v.Settings.Inside != Encrypted {
		h.Encapsulation = v.Settings.Inside
	}
	h.Routes, h.Forwarded = v.routes()
	h.Firewall = v.firewall(h.Routes, h.Forwarded)
	return h
}

// routes are all remote prefixes, each with the way that the topology gives it, and the internal
// IPs that only what is forwarded reaches so.
func (v view) routes() (all, forwarded []Route) {
	table := routeTable{view: v, byDst: make(map[netip.Prefix]Route)}
	for _, n := range v.members {
		if n != v.self {
			table.addNode(n)
		}
	}
	for _, p := range v.outside {
		table.addOutside(p)
	}
	return table.list(), v.forwarded(table)
}

// forwarded has the ways to the internal IPs that have no route of their own.
func (v view) forwarded(all routeTable) []Route {
	table := routeTable{view: v, byDst: make(map[netip.Prefix]Route), forwarded: true}
	for _, n := range v.members {
		if n == v.self || n.Status.Mode == Netstack { // a stack has no address of its machine
			continue
		}
		outer := slices.DeleteFunc(single(n.prefixes.internal), func(p netip.Prefix) bool {
			_, routed := all.byDst[p]
			return routed
		})
		switch {
		case v.tunnelTo(n), n.segment != v.self.segment && v.leading():
			table.tunnel(outer, n.subject())
		case n.segment == v.self.segment: // natively, both ways
		case v.tunnelTo(v.self.segment.leader):
			table.tunnel(outer, n.subject())
		default:
			table.gateway(outer, v.self.segment.leader, n.subject())
		}
	}
	return table.list()
}

// routeTable collects routes. Each destination has one: conflicts were settled before.
type routeTable struct {
	view
	byDst     map[netip.Prefix]Route
	forwarded bool // the routes are not for the machine's own packets
}

func (t routeTable) list() []Route {
	list := make([]Route, 0, len(t.byDst))
	for _, r := range t.byDst {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Route) int { return a.Dst.Compare(b.Dst) })
	return list
}

func (t routeTable) addNode(n *member) {
	neighbour := n.segment == t.self.segment
	switch {
	case t.tunnelTo(n), !neighbour && t.leading():
		t.tunnel(t.routed(n), n.subject())
	case neighbour:
		t.gateway(n.prefixes.inner(), n, n.subject())
	case t.tunnelTo(t.self.segment.leader): // encrypted inside
		t.tunnel(t.routed(n), n.subject())
	default:
		t.gateway(t.routed(n), t.self.segment.leader, n.subject())
	}
}

func (t routeTable) addOutside(p *outside) {
	switch {
	case t.tunnelsOutside(), t.tunnelTo(t.self.segment.leader):
		t.tunnel(p.prefixes.all(), p.subject())
	default:
		t.gateway(p.prefixes.all(), t.self.segment.leader, p.subject())
	}
}

// routed are the prefixes of a node of another location: its internal IPs too, but not those at
// which its tunnel is reached from outside, or that carry this one.
func (t routeTable) routed(n *member) []netip.Prefix {
	list := n.prefixes.inner()
	if n.Spec.Location == t.self.Spec.Location {
		return list
	}
	for _, a := range n.prefixes.internal {
		if !n.isOuter(a) && t.endpoint(t.carrier(n)).Host != a.String() {
			list = append(list, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return list
}

// isOuter reports whether other machines reach the node at an address without a tunnel.
func (n *member) isOuter(a netip.Addr) bool {
	if declared, ok := n.declared.AddrPort(); ok && declared.Addr().Unmap() == a {
		return true
	}
	return slices.ContainsFunc(n.Status.Endpoints, func(e netip.AddrPort) bool { return e.Addr().Unmap() == a })
}

// carrier is the node whose tunnel leads to n.
func (t routeTable) carrier(n *member) *member {
	if t.Settings.Topology == ByLocation {
		return n.segment.leader
	}
	return n
}

func (t routeTable) tunnel(list []netip.Prefix, s Subject) {
	for _, dst := range list {
		if t.forwarded || !t.clashes(dst, s) && !t.locksOut(dst, s) {
			t.byDst[dst] = Route{Dst: dst, Via: ViaTunnel, Src: t.source(dst), Member: s.Name}
		}
	}
}

func (t routeTable) gateway(list []netip.Prefix, next *member, s Subject) {
	via := ViaNative
	if t.Settings.Inside != Native {
		via = ViaEncapsulated
	}
	for _, dst := range list {
		if gw, ok := next.gateway(dst); ok && (t.forwarded || !t.clashes(dst, s) && !t.locksOut(dst, s)) {
			t.byDst[dst] = Route{Dst: dst, Via: via, Gateway: gw, Src: t.source(dst), Member: s.Name}
		}
	}
}

// gateway is the internal IP of the family of the destination, or else of the other, which
// routing can do as well (RFC 5549 shows how).
func (n *member) gateway(dst netip.Prefix) (netip.Addr, bool) {
	for _, a := range n.prefixes.internal {
		if a.Is4() == dst.Addr().Is4() {
			return a, true
		}
	}
	if len(n.prefixes.internal) == 0 {
		return netip.Addr{}, false
	}
	return n.prefixes.internal[0], true
}

// source is this node's mesh address of the family. What is forwarded has a source already.
func (t routeTable) source(dst netip.Prefix) netip.Addr {
	if t.forwarded {
		return netip.Addr{}
	}
	for _, a := range t.self.prefixes.mesh {
		if a.Is4() == dst.Addr().Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// clashes reports a prefix that would take the machine's own link away from it. It keeps its
// place among the allowed IPs: the other nodes may use it. The internal IP of another location
// that is on a link here is reached there, and no fault.
func (v view) clashes(dst netip.Prefix, s Subject) bool {
	if dst.Bits() == 0 {
		return false // the machine's own links go before a default route
	}
	for _, l := range v.Local.Links {
		l = l.Masked()
		if !l.Overlaps(dst) || l.IsSingleIP() && dst != l {
			continue
		}
		if held, ok := v.owned.single[dst.Addr()]; !ok || !dst.IsSingleIP() || held.use != "internal IP" {
			v.report(Problem{s, "", dst.String(), OverlapsHost, "overlaps " + l.String() + " on a link of this machine, no route is made here", "choose addresses that are nowhere else in use"})
		}
		return true
	}
	return false
}

// locksOut reports whether a route could take the control plane away from this machine: it covers
// an address of that, and is not one for that address alone by a way that is known to carry packets.
func (v view) locksOut(dst netip.Prefix, s Subject) bool {
	i := slices.IndexFunc(v.Local.ControlPlane, dst.Contains)
	if i < 0 || dst.Bits() == 0 { // a default route leaves the machine's own as they are
		return false
	}
	if !dst.IsSingleIP() {
		v.report(Problem{s, "", dst.String(), ForbiddenPrefix, "holds " + v.Local.ControlPlane[i].String() + ", at which this machine asks the cluster, no route is made here", "leave that address out"})
		return true
	}
	n := v.byName[s.Name]
	if s.Kind != KindNode || n == nil {
		return true
	}
	way := n
	if v.Settings.Topology == ByLocation {
		way = n.segment.leader
		if !v.leading() {
			way = v.self.segment.leader
		}
	}
	return v.Local.Paths[way.key].Verdict != Up
}

// probes are the nodes whose path this one tests: those it has a tunnel to, and of its location
// the one that leads it and the one that would be next; who leads tests all that it carries.
func (v view) probes() (list []Probe) {
	for _, n := range v.members {
		tunnel := v.tunnelTo(n)
		near := n != v.self && n.segment == v.self.segment && v.Settings.Topology == ByLocation &&
			(n.segment.leader == n || n.segment.candidate == n || v.leading())
		if len(n.prefixes.mesh) == 0 || !tunnel && !near {
			continue
		}
		carries := len(n.segment.members) > 1 && v.Settings.Topology == ByLocation && (n.segment.leader == n || n.segment.candidate == n)
		list = append(list, Probe{Name: n.Name, Key: n.key, Address: n.prefixes.mesh[0], Tunnel: tunnel, Carries: carries})
	}
	return list
}
