package netstack

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
)

// policy is a row of RFC 6724's table (section 2.1): where an address belongs, and how
// readily it is taken.
type policy struct {
	prefix            netip.Prefix
	precedence, label int
}

// policies are RFC 6724's rows that can occur in a tunnel, the longest prefix first.
func policies() []policy {
	return []policy{
		{netip.MustParsePrefix("2001::/32"), 5, 5},  // Teredo
		{netip.MustParsePrefix("2002::/16"), 30, 2}, // 6to4
		{netip.MustParsePrefix("fc00::/7"), 3, 13},  // unique local
		{netip.MustParsePrefix("0.0.0.0/0"), 35, 4}, // IPv4
		{netip.MustParsePrefix("::/0"), 40, 1},
	}
}

// candidate is a destination with what decides its place.
type candidate struct {
	addr       netip.Addr
	reachable  bool // we have an address of its family
	matching   bool // and one with the same label
	precedence int
	common     int // leading bits it has in common with our nearest address
}

// sortByPreference puts the addresses in the order in which they are best tried: RFC 6724,
// section 6, rules 1, 5, 6 and 9; the others are about what a tunnel does not have. What is
// equal keeps its order, so that a server's round robin has its effect.
func sortByPreference(addrs []netip.Addr, sources []netip.Prefix) []netip.Addr {
	table := policies()
	list := make([]candidate, len(addrs))
	for i, addr := range addrs {
		list[i] = weigh(table, addr, sources)
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(
			first(a.reachable, b.reachable),
			first(a.matching, b.matching),
			cmp.Compare(b.precedence, a.precedence),
			nearer(a, b),
		)
	})
	out := make([]netip.Addr, len(list))
	for i, c := range list {
		out[i] = c.addr
	}
	return slices.Compact(out)
}

func weigh(table []policy, addr netip.Addr, sources []netip.Prefix) candidate {
	p := policyOf(table, addr)
	c := candidate{addr: addr, precedence: p.precedence}
	for _, s := range sources {
		source := s.Addr().Unmap()
		if source.Is4() != addr.Is4() {
			continue
		}
		c.reachable = true
		c.matching = c.matching || policyOf(table, source).label == p.label
		c.common = max(c.common, commonBits(addr, source))
	}
	return c
}

func policyOf(table []policy, addr netip.Addr) policy {
	return table[slices.IndexFunc(table, func(p policy) bool { return p.prefix.Contains(addr) })]
}

// first sorts true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// nearer is rule 9, for IPv6 alone: for IPv4 it would only undo round robin.
func nearer(a, b candidate) int {
	if a.addr.Is4() || b.addr.Is4() {
		return 0
	}
	return cmp.Compare(b.common, a.common)
}

func commonBits(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return i*8 + bits.LeadingZeros8(d)
		}
	}
	return 128
}
