package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// DefaultPeerMTU is for a peer whose path nobody has measured: links of 1500 bytes, and IPv6
// outside.
const DefaultPeerMTU = 1420

// PeerPlan is what an outside peer is to have at its own end.
type PeerPlan struct {
	Self string
	// Addresses are those of its interface: its mesh addresses, else what it has in its allowed
	// IPs.
	Addresses []netip.Prefix
	MTU       int // of the inner packets, bytes
	// Device has the nodes that it has a tunnel with. It has no private key.
	Device device.Config
}

// PlanPeer is MakePlan for the other end of the tunnels that nodes have with an outside peer: each
// of those nodes, with all that is reached through it. The addresses of the services go to the
// oldest node that can be called. When the peer is not a member the plan is zero and a problem of
// reason NoMember says why.
func PlanPeer(s Snapshot, name string) (PeerPlan, []Problem) {
	m := newMesh(s)
	i := slices.IndexFunc(m.outside, func(p *outside) bool { return p.Name == name })
	if i < 0 {
		m.report(Problem{
			Subject: Subject{Kind: KindPeer, Name: name}, Reason: NoMember,
			Detail: "this peer is not a member of the mesh", Remedy: "see its other problems, or create it",
		})
		return PeerPlan{}, m.sortedProblems()
	}
	p := m.outside[i]
	plan := PeerPlan{Self: name, Addresses: p.addresses(), MTU: m.peerMTU(), Device: device.Config{ListenPort: p.endpoint.Port}}
	services := m.Settings.ServiceCIDRs
	for _, n := range m.byAge() {
		if m.Settings.Topology == ByLocation && n.segment.leader != n {
			continue
		}
		peer := m.fromOutside(p, n)
		if !peer.Endpoint.IsZero() {
			peer.AllowedIPs = sorted(slices.Concat(peer.AllowedIPs, services))
			services = nil
		}
		plan.Device.Peers = append(plan.Device.Peers, peer)
	}
	slices.SortFunc(plan.Device.Peers, func(a, b device.PeerConfig) int { return cmp.Compare(a.Name, b.Name) })
	return plan, m.sortedProblems()
}

// addresses are those of the peer's own interface.
func (p *outside) addresses() []netip.Prefix {
	if list := single(p.prefixes.mesh); len(list) > 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(p.prefixes.extra), func(a netip.Prefix) bool { return !a.IsSingleIP() })
}

// peerMTU is the smallest that an administrator gave any node.
func (m *mesh) peerMTU() int {
	mtu := DefaultPeerMTU
	for _, n := range m.members {
		if n.Spec.MTU != 0 {
			mtu = min(mtu, n.Spec.MTU)
		}
	}
	return mtu
}

// fromOutside is a node as an outside peer has it. The address that the tunnel ends at is not
// reached through the tunnel.
func (m *mesh) fromOutside(p *outside, n *member) device.PeerConfig {
	peer := device.PeerConfig{PublicKey: n.key, PresharedKey: p.PresharedKey, Name: n.Name, Source: n.Source}
	for _, e := range slices.Concat([]device.Endpoint{n.declared}, m.foundEndpoints(n), m.learned[n.key]) {
		if !e.IsZero() {
			peer.Endpoint = e
			break
		}
	}
	if peer.Endpoint.IsZero() && p.endpoint.IsZero() {
		m.report(Problem{n.subject(), "spec.endpoint", "", NoEndpoint, fmt.Sprintf("is not known, so that peer %s cannot call the node", p.Name), "give the node an endpoint"})
	}
	if p.endpoint.IsZero() && !peer.Endpoint.IsZero() {
		peer.PersistentKeepalive = cmp.Or(p.PersistentKeepalive, DefaultKeepalive)
	}
	end, _ := peer.Endpoint.AddrPort()
	members := []*member{n}
	if m.Settings.Topology == ByLocation {
		members = n.segment.members
	}
	for _, other := range members {
		for _, prefix := range other.prefixes.all() {
			if !prefix.IsSingleIP() || prefix.Addr() != end.Addr() {
				peer.AllowedIPs = append(peer.AllowedIPs, prefix)
			}
		}
	}
	peer.AllowedIPs = sorted(peer.AllowedIPs)
	return peer
}

// FreeAddresses proposes mesh addresses for a peer of the key, one of each family that the mesh
// has, that nobody holds.
func FreeAddresses(s Snapshot, key device.PublicKey) []netip.Addr {
	m := newMesh(s)
	v := view{mesh: m, self: &member{Node: &Node{}, key: key}}
	return v.freeAddresses(nil)
}
