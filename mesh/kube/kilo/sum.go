package kilo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/stillwire/stillwire/device"
)

// Granularity is which nodes share a segment.
type Granularity string

// The granularities.
const (
	PerLocation Granularity = "location" // the nodes of a location that have an internal IP
	PerNode     Granularity = "full"     // each node alone
)

// Options are what all agents of a Kilo mesh are started with.
type Options struct {
	Granularity Granularity  // "": PerLocation
	Subnet      netip.Prefix // of the addresses of the segments
}

// Mesh is what every agent of a Kilo mesh makes of the same objects.
type Mesh struct {
	Segments []Segment // by name
	Peers    []Peer    // by name; a prefix given twice is the first one's
}

// Segment is the nodes that one of them, its leader, has tunnels for.
type Segment struct {
	Name    string // "location:berlin" or "node:a"
	Nodes   []Node // by name
	Leader  Node
	Address netip.Addr // of the leader's interface
	// AllowedIPs are, for each node, its pods and its internal IP, and then the Address.
	AllowedIPs []netip.Prefix
	// Extra are the prefixes beside that nobody else has a claim to.
	Extra []netip.Prefix
}

// Sum makes a mesh of nodes and peers that are ready. The order of either is of no matter. The
// error says that the subnet has no address for every segment: then no agent of the mesh does
// anything.
func Sum(nodes []Node, peers []Peer, o Options) (Mesh, error) {
	m := Mesh{Segments: segments(nodes, o.Granularity), Peers: firstOwners(peers)}
	address := o.Subnet.Masked().Addr()
	for i := range m.Segments {
		s := &m.Segments[i]
		if address = address.Next(); !o.Subnet.Contains(address) {
			return Mesh{}, fmt.Errorf("subnet %s has addresses for %d segments, and there are %d: give a larger one", o.Subnet, i, len(m.Segments))
		}
		s.Address = address
		s.AllowedIPs = append(s.AllowedIPs, single(address))
		// The segments that follow have no address yet, and their extra prefixes are as written:
		// it is Kilo's order that counts.
		s.Extra = slices.DeleteFunc(s.Extra, func(p netip.Prefix) bool { return m.claimed(p, s) })
	}
	return m, nil
}

// segments are the nodes by location, without addresses.
func segments(nodes []Node, g Granularity) (list []Segment) {
	byName := make(map[string][]Node)
	for _, n := range nodes {
		name := n.segment(g)
		byName[name] = append(byName[name], n)
	}
	for name, members := range byName {
		slices.SortFunc(members, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
		s := Segment{Name: name, Nodes: members, Leader: lead(members)}
		for _, n := range members {
			s.AllowedIPs = append(s.AllowedIPs, n.PodCIDR)
			if n.InternalIP.IsValid() {
				s.AllowedIPs = append(s.AllowedIPs, single(n.InternalIP.Addr()))
			}
			s.Extra = append(s.Extra, n.AllowedLocationIPs...)
		}
		slices.SortFunc(s.Extra, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
		s.Extra = slices.Compact(s.Extra)
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Segment) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (n Node) segment(g Granularity) string {
	if g == PerNode || !n.InternalIP.IsValid() {
		return "node:" + n.Name
	}
	return "location:" + n.Location
}

// lead chooses among the nodes of a segment, by name: first of all one that is told to and has a
// public endpoint, then one that is told to, then one with a public endpoint.
func lead(members []Node) Node {
	for _, fits := range []func(n Node) bool{
		func(n Node) bool { return n.Leader && isPublic(n.Endpoint) },
		func(n Node) bool { return n.Leader },
		func(n Node) bool { return isPublic(n.Endpoint) },
	} {
		if i := slices.IndexFunc(members, fits); i >= 0 {
			return members[i]
		}
	}
	return members[0]
}

// firstOwners sorts peers, and takes from each the prefixes that one before has.
func firstOwners(peers []Peer) []Peer {
	sorted := slices.Clone(peers)
	slices.SortFunc(sorted, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	owned := make(map[netip.Prefix]bool)
	for i := range sorted {
		sorted[i].AllowedIPs = slices.DeleteFunc(slices.Clone(sorted[i].AllowedIPs), func(p netip.Prefix) bool {
			taken := owned[p]
			owned[p] = true
			return taken
		})
	}
	return sorted
}

// claimed reports whether an extra prefix of a segment lies within what is a node's, or shares an
// address with what is another segment's extra or a peer's.
func (m Mesh) claimed(p netip.Prefix, of *Segment) bool {
	overlaps := func(other netip.Prefix) bool { return p.Overlaps(other) }
	holds := func(other netip.Prefix) bool { return other.Contains(p.Addr()) }
	for i := range m.Segments {
		s := &m.Segments[i]
		if slices.ContainsFunc(s.AllowedIPs, holds) || s != of && slices.ContainsFunc(s.Extra, overlaps) {
			return true
		}
	}
	return slices.ContainsFunc(m.Peers, func(peer Peer) bool { return slices.ContainsFunc(peer.AllowedIPs, overlaps) })
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Device returns the peers that the agent of a node gives its device, should the node lead its
// segment: segments by name and then peers by name. Prefixes may have host bits and one owner too
// many, and a keepalive may be negative, as Kilo's have. It returns false when the node is not
// there.
func (m Mesh) Device(node string) ([]device.PeerConfig, bool) {
	own, self := m.find(node)
	if own < 0 {
		return nil, false
	}
	list := slices.Delete(m.Members(self), own, own+1)
	for i := range list {
		list[i].PersistentKeepalive = self.PersistentKeepalive
	}
	return list, true
}

// Members are all segments and all peers, as who asks a node about them is told: with the endpoints
// that this one knows of.
func (m Mesh) Members(self Node) (list []device.PeerConfig) {
	seen := m.discovered(self)
	for _, s := range m.Segments {
		list = append(list, device.PeerConfig{
			PublicKey: s.Leader.Key, Endpoint: seen.endpoint(s.Leader.Key, s.Leader.Endpoint, s.Leader.PersistentKeepalive != 0),
			AllowedIPs: slices.Concat(s.AllowedIPs, s.Extra), Name: s.Leader.Name,
		})
	}
	for _, p := range m.Peers {
		list = append(list, device.PeerConfig{
			PublicKey: p.Key, PresharedKey: p.PresharedKey, Endpoint: seen.endpoint(p.Key, p.Endpoint, p.PersistentKeepalive != 0),
			AllowedIPs: p.AllowedIPs, Name: p.Name,
		})
	}
	return list
}

// find returns the index of a node's segment, -1 when it has none.
func (m Mesh) find(name string) (segment int, n Node) {
	for i, s := range m.Segments {
		for _, n := range s.Nodes {
			if n.Name == name {
				return i, n
			}
		}
	}
	return -1, Node{}
}

// sightings are where packets of others come from.
type sightings map[device.PublicKey]device.Endpoint

// discovered has what a node sees itself, and then what the others see, by segment and name.
func (m Mesh) discovered(self Node) sightings {
	all := make(sightings)
	note := func(n Node) {
		for k, e := range n.Discovered {
			if _, known := all[k]; !known {
				all[k] = e
			}
		}
	}
	note(self)
	for _, s := range m.Segments {
		for _, n := range s.Nodes {
			note(n)
		}
	}
	return all
}

// endpoint is where who roams was seen, and where anybody else says to be.
func (s sightings) endpoint(k device.PublicKey, own device.Endpoint, roams bool) device.Endpoint {
	if seen, known := s[k]; known && roams {
		return seen
	}
	return own
}
