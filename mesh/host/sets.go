//go:build linux

package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// ruleset is our table as a whole.
type ruleset struct {
	chains []chain
	sets   []set
}

// set is a named set of our table, with sorted elements that do not overlap.
type set struct {
	name     string
	kind     nftables.SetDatatype
	elements []interval
}

// interval is a range of addresses from the first to the one after the last. Behind the last
// address of a family there is none. A single value, of a set without intervals, has only from.
type interval struct{ from, to string }

func (s set) isInterval() bool { return s.kind.Bytes != nftables.TypeInetService.Bytes }

// wantFirewall fills the sets.
func (o Options) wantFirewall(plan mesh.HostPlan, around *surroundings) ruleset {
	f := plan.Firewall
	r := ruleset{chains: o.chains()}
	for name, prefixes := range map[string][]netip.Prefix{
		"reserved": f.Reserved, "tunnelled": f.Tunnelled, "open": openWith(plan, around), "native": f.Native, "local": f.Local, "behind": f.Behind,
		"pods": masqueraded(f.Pods), "inside": f.Inside, "neighbours": f.Neighbours, "mesh": plan.Addresses,
		"outer": f.Outer,
	} {
		r.sets = append(r.sets,
			set{name + "4", nftables.TypeIPAddr, intervals(prefixes, unix.AF_INET)},
			set{name + "6", nftables.TypeIP6Addr, intervals(prefixes, unix.AF_INET6)})
	}
	ports := set{name: "port", kind: nftables.TypeInetService}
	if plan.ListenPort != 0 {
		ports.elements = []interval{{from: string(binary.BigEndian.AppendUint16(nil, plan.ListenPort))}}
	}
	untracked := ports
	untracked.name = "untracked"
	r.sets = append(r.sets, ports, untracked, o.encapsulated(plan))
	slices.SortFunc(r.sets, func(a, b set) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	if o.TrackPort {
		r.trackPort()
	}
	return r
}

// encapsulated is the port of what comes encapsulated, where something does.
func (o Options) encapsulated(plan mesh.HostPlan) set {
	s := set{name: "encapsulated", kind: nftables.TypeInetService}
	used := slices.ContainsFunc(plan.Routes, func(r mesh.Route) bool { return r.Via == mesh.ViaEncapsulated })
	if c := o.carrier(); used && c.port != 0 {
		s.elements = []interval{{from: string(binary.BigEndian.AppendUint16(nil, c.port))}}
	}
	return s
}

// trackPort leaves the outer packets to connection tracking.
func (r ruleset) trackPort() {
	for i := range r.sets {
		if r.sets[i].name == "untracked" {
			r.sets[i].elements = nil
		}
	}
}

// openWith are what leaves by other links although all of a family is behind the tunnel: the
// links themselves, what is reached without a tunnel, and what never leaves a link.
func openWith(plan mesh.HostPlan, around *surroundings) (open []netip.Prefix) {
	for _, family := range families() {
		if !hasDefault(plan, family) {
			continue
		}
		all := slices.Concat(around.prefixes(), plan.Firewall.Native, linkScope())
		open = append(open, slices.DeleteFunc(all, func(p netip.Prefix) bool { return familyOf(p.Addr()) != family })...)
	}
	return outermost(open)
}

func linkScope() []netip.Prefix {
	at := func(bits int, b ...byte) netip.Prefix {
		var a [4]byte
		copy(a[:], b)
		return netip.PrefixFrom(netip.AddrFrom4(a), bits)
	}
	at6 := func(bits int, b ...byte) netip.Prefix {
		var a [16]byte
		copy(a[:], b)
		return netip.PrefixFrom(netip.AddrFrom16(a), bits)
	}
	return []netip.Prefix{at(8, 127), at(16, 169, 254), at(4, 224), at(32, 255, 255, 255, 255), at6(10, 0xfe, 0x80), at6(8, 0xff), netip.PrefixFrom(netip.IPv6Loopback(), 128)}
}

// masqueraded are the pods that the world cannot answer: all of IPv4, and unique local ones of
// IPv6 (RFC 4193).
func masqueraded(pods []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(pods), func(p netip.Prefix) bool { return p.Addr().Is6() && !p.Addr().IsPrivate() })
}

// outermost sorts, and drops what lies within another.
func outermost(prefixes []netip.Prefix) (out []netip.Prefix) {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, comparePrefixes)
	for _, p := range sorted {
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out
}

func intervals(prefixes []netip.Prefix, family int) (out []interval) {
	for _, p := range outermost(prefixes) {
		if familyOf(p.Addr()) == family {
			out = append(out, intervalOf(p))
		}
	}
	return out
}

func intervalOf(p netip.Prefix) interval {
	i := interval{from: string(p.Masked().Addr().AsSlice())}
	if next := lastOf(p).Next(); next.IsValid() {
		i.to = string(next.AsSlice())
	}
	return i
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// String is the prefix where it is one.
func (i interval) String() string {
	from, ok := netip.AddrFromSlice([]byte(i.from))
	if !ok {
		return fmt.Sprint(binary.BigEndian.Uint16([]byte(i.from)))
	}
	for bits := range from.BitLen() + 1 {
		if p := netip.PrefixFrom(from, bits); p.Masked() == p && intervalOf(p) == i {
			return p.String()
		}
	}
	to, _ := netip.AddrFromSlice([]byte(i.to))
	return from.String() + " to before " + to.String()
}

// diffElements returns what to add to a set and what to remove. Both are sorted.
func diffElements(have, want []interval) (add, remove []interval) {
	present := make(map[interval]bool, len(have))
	for _, i := range have {
		present[i] = true
	}
	for _, i := range want {
		if !present[i] {
			add = append(add, i)
		}
		delete(present, i)
	}
	for _, i := range have {
		if present[i] {
			remove = append(remove, i)
		}
	}
	return add, remove
}

// fromElements pairs the beginnings and ends that the kernel keeps. An end that is a beginning
// as well comes before it.
func fromElements(elements []nftables.SetElement, isInterval bool) (out []interval) {
	slices.SortFunc(elements, func(a, b nftables.SetElement) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 || a.IntervalEnd == b.IntervalEnd {
			return c
		}
		if a.IntervalEnd {
			return -1
		}
		return 1
	})
	open := false
	for _, e := range elements {
		switch {
		case !e.IntervalEnd:
			out = append(out, interval{from: string(e.Key)})
			open = isInterval
		case open:
			out[len(out)-1].to = string(e.Key)
			open = false
		}
	}
	return out
}

func toElements(intervals []interval, isInterval bool) (out []nftables.SetElement) {
	for _, i := range intervals {
		out = append(out, nftables.SetElement{Key: []byte(i.from)})
		if isInterval && i.to != "" {
			out = append(out, nftables.SetElement{Key: []byte(i.to), IntervalEnd: true})
		}
	}
	return out
}
