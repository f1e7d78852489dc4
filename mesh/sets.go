package mesh

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
	"go4.org/netipx"
)

// class is what the firewall does with an address.
type class int

const (
	tunnelled class = iota
	native
	local
	classes
)

// firewall fills the sets. An address belongs to the set of the longest prefix that holds it,
// as it does to the route of that prefix.
func (v view) firewall(routes, forwarded []Route) Firewall {
	var byClass [classes][]netip.Prefix
	for _, r := range routes {
		c := native
		if r.Via == ViaTunnel {
			c = tunnelled
		}
		byClass[c] = append(byClass[c], r.Dst)
	}
	byClass[local] = slices.Concat(v.self.prefixes.inner(), single(v.claimed.MeshAddresses))
	cut := divideByLongest(byClass)
	return Firewall{
		Reserved:   outermost(slices.Concat(v.Settings.Subnets, v.Settings.ClusterCIDRs)),
		Tunnelled:  cut[tunnelled],
		Native:     cut[native],
		Local:      cut[local],
		Behind:     outermost(v.behindSelf()),
		Pods:       outermost(v.self.prefixes.pods),
		Inside:     v.inside(),
		Neighbours: v.neighbours(),
		Outer:      destinations(forwarded),
	}
}

// behindSelf are the prefixes for which this node is the way into the tunnel.
func (v view) behindSelf() (list []netip.Prefix) {
	if v.Settings.Topology != ByLocation || !v.leading() {
		return nil
	}
	for _, n := range v.self.segment.members {
		if n != v.self {
			list = append(list, n.prefixes.all()...)
		}
	}
	return list
}

// inside are the destinations that must see who speaks to them.
func (v view) inside() []netip.Prefix {
	list := slices.Concat(v.Settings.Subnets, v.Settings.ClusterCIDRs, v.Settings.ServiceCIDRs)
	for _, n := range v.members {
		list = append(list, n.prefixes.pods...)
	}
	return outermost(list)
}

func destinations(routes []Route) (list []netip.Prefix) {
	for _, r := range routes {
		list = append(list, r.Dst)
	}
	return list
}

func (v view) neighbours() (list []netip.Prefix) {
	for _, n := range v.self.segment.members {
		if n != v.self {
			list = append(list, single(n.prefixes.internal)...)
		}
	}
	return sorted(list)
}

// outermost sorts and drops what lies within another prefix of the list.
func outermost(list []netip.Prefix) (out []netip.Prefix) {
	for _, p := range sorted(slices.Clone(list)) { // an outer one sorts before what it holds
		if n := len(out); n == 0 || !holds(out[n-1], p) {
			out = append(out, p)
		}
	}
	return out
}

func holds(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// divideByLongest gives each address to the class of the longest prefix that holds it. A prefix
// that holds none of another class stays whole, so that a change of one member changes the
// elements of that member alone. Default routes are in no class: they hold the machine's own
// links, and the internet that the outer packets go to.
func divideByLongest(byClass [classes][]netip.Prefix) (out [classes][]netip.Prefix) {
	var table bart.Table[class]
	for c := range classes {
		for _, p := range byClass[c] {
			if p.Bits() > 0 {
				table.Insert(p, c)
			}
		}
	}
	for p, c := range table.All() {
		if outer, ok := enclosing(&table, p); ok && outer == c {
			continue // within one of its own class
		}
		out[c] = append(out[c], without(&table, p, c)...)
	}
	for c := range out {
		out[c] = outermost(out[c])
	}
	return out
}

// enclosing is the class of the next prefix around p.
func enclosing(table *bart.Table[class], p netip.Prefix) (class, bool) {
	for outer, c := range table.Supernets(p) { // longest first
		if outer != p {
			return c, true
		}
	}
	return 0, false
}

// without returns p less what longer prefixes give to other classes.
func without(table *bart.Table[class], p netip.Prefix, c class) []netip.Prefix {
	var b netipx.IPSetBuilder
	whole := true
	for inner, other := range table.Subnets(p) { // in order, an outer one before what it holds
		switch {
		case inner == p:
			b.AddPrefix(p)
		case other != c:
			b.RemovePrefix(inner)
			whole = false
		case !whole:
			b.AddPrefix(inner)
		}
	}
	if whole {
		return []netip.Prefix{p}
	}
	set, err := b.IPSet()
	if err != nil {
		panic("mesh: valid prefixes made an invalid set: " + err.Error())
	}
	return set.Prefixes()
}
