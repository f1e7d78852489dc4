package mesh

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// shareMeshAddresses settles the claims that nodes and peers make to mesh addresses: peers'
// were written by an administrator and go first, then the oldest node.
func (m *mesh) shareMeshAddresses(nodes []*member, peers []*outside) {
	for _, p := range peers {
		p.prefixes.mesh = m.claimAddresses(p.subject(), "spec.meshAddresses", p.MeshAddresses)
	}
	for _, n := range nodes {
		n.prefixes.mesh = m.claimAddresses(n.subject(), "status.meshAddresses", n.Status.MeshAddresses)
	}
}

func (m *mesh) claimAddresses(s Subject, field string, claims []netip.Addr) (got []netip.Addr) {
	var have [2]bool
	for _, a := range claims {
		a = a.Unmap().WithZone("")
		if a.IsValid() && !have[family(a)] && m.claimAddress(s, field, a) {
			have[family(a)] = true
			got = append(got, a)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	return got
}

func (m *mesh) claimAddress(s Subject, field string, a netip.Addr) bool {
	remedy := "restart its agent, which then takes another"
	if s.Kind == KindPeer {
		remedy = "give it a free address of the subnet"
	}
	if !usable(m.Settings.Subnets, a) {
		m.report(Problem{s, field, a.String(), AddressOutside, "is not an address of the mesh's subnets, it is ignored", remedy})
		return false
	}
	if other, taken := m.owned.pods.Lookup(a); taken && !other.same(s) {
		m.report(Problem{s, field, a.String(), DuplicateAddress, "is among the pods of " + other.String() + ", it is ignored", "choose a subnet that no pods have"})
		return false
	}
	if other, taken := m.owned.single[a]; taken && !other.by.same(s) {
		m.report(Problem{s, field, a.String(), DuplicateAddress, "is the mesh address of " + other.by.String() + ", which keeps it", remedy})
		return false
	}
	m.owned.single[a] = holding{s, "mesh address"}
	return true
}

// usable reports whether a member may have the address: neither the network's own nor, in IPv4,
// the broadcast address.
func usable(subnets []netip.Prefix, a netip.Addr) bool {
	for _, p := range subnets {
		if p.Contains(a) {
			return p.IsSingleIP() || a != p.Addr() && (a.Is6() || a != last(p))
		}
	}
	return false
}

// claims are the addresses the node keeps, or proposes in place of what it has lost, and its
// claim to lead.
func (v view) claims() Claims {
	return Claims{MeshAddresses: v.freeAddresses(v.self.prefixes.mesh), Leads: v.leads()}
}

// freeAddresses are those that the member has, and a proposal for each family that it lacks.
func (v view) freeAddresses(have []netip.Addr) []netip.Addr {
	list := slices.Clone(have)
	var has [2]bool
	for _, a := range list {
		has[family(a)] = true
	}
	for _, p := range v.Settings.Subnets {
		if f := family(p.Addr()); !has[f] {
			if a, ok := v.propose(p); ok {
				has[f] = true
				list = append(list, a)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// tries is how many addresses are looked at by hash before the subnet is searched in order.
const tries = 64

// propose chooses a free address: the key decides, so that nodes that start at once, and see
// nothing of each other yet, choose different ones nearly always.
func (v view) propose(p netip.Prefix) (netip.Addr, bool) {
	for i := range uint32(tries) {
		if a := hashed(p, v.self.key, i); v.free(p, a) {
			return a, true
		}
	}
	a := p.Addr()
	for range 1 << 16 {
		if v.free(p, a) {
			return a, true
		}
		if a = a.Next(); !p.Contains(a) {
			break
		}
	}
	v.report(Problem{v.self.subject(), "status.meshAddresses", p.String(), AddressesExhausted, "has no free address, the node has none of it", "give the mesh a larger subnet"})
	return netip.Addr{}, false
}

func (v view) free(p netip.Prefix, a netip.Addr) bool {
	if !usable([]netip.Prefix{p}, a) {
		return false
	}
	if _, taken := v.owned.single[a]; taken {
		return false
	}
	if _, taken := v.owned.extra[netip.PrefixFrom(a, a.BitLen())]; taken {
		return false
	}
	_, taken := v.owned.pods.Lookup(a)
	return !taken
}

// hashed returns the i-th address of the subnet that the key proposes.
func hashed(p netip.Prefix, key device.PublicKey, i uint32) netip.Addr {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(slices.Concat(key[:], p.Addr().AsSlice()), i))
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		mask := byte(0x80) >> (bit % 8)
		b[bit/8] = b[bit/8]&^mask | sum[bit/8]&mask
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// last is the highest address of the prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= byte(0x80) >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
