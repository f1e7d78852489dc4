package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/stillwire/stillwire/device"
)

// view is the mesh as one of its nodes sees it.
type view struct {
	*mesh
	self    *member
	options Options
	claimed Claims // what this node says of itself
}

// tunnelTo reports whether there is a tunnel between this node and another. It is symmetric:
// each of the two comes to the same answer.
func (v view) tunnelTo(n *member) bool {
	switch {
	case n == v.self:
		return false
	case n.segment == v.self.segment:
		return v.Settings.Inside == Encrypted
	case v.Settings.Topology == ByLocation:
		return n.segment.leader == n && v.leading()
	}
	return true
}

// leading reports whether this node carries its location.
func (v view) leading() bool { return v.self.segment.leader == v.self }

// tunnelsOutside reports whether this node has tunnels to the members without an agent.
func (v view) tunnelsOutside() bool { return v.Settings.Topology != ByLocation || v.leading() }

// device is the wanted device, with peers by key.
func (v view) device() device.Config {
	c := device.Config{ListenPort: v.self.port}
	for _, n := range v.members {
		if v.tunnelTo(n) {
			c.Peers = append(c.Peers, v.peerNode(n))
		}
	}
	if v.tunnelsOutside() {
		for _, p := range v.outside {
			c.Peers = append(c.Peers, v.peerOutside(p))
		}
	}
	slices.SortFunc(c.Peers, func(a, b device.PeerConfig) int { return a.PublicKey.Compare(b.PublicKey) })
	return c
}

func (v view) peerNode(n *member) device.PeerConfig {
	e := v.endpoint(n)
	if e.IsZero() && len(v.candidates(v.self, n)) == 0 {
		v.report(Problem{n.subject(), "spec.endpoint", "", NoEndpoint, "can neither be reached from here nor reach this node, so that they have no tunnel", "give one of the two an endpoint that the other reaches"})
	}
	return device.PeerConfig{
		PublicKey:           n.key,
		Endpoint:            e,
		PersistentKeepalive: v.keepalive(n),
		AllowedIPs:          v.behind(n),
		Name:                n.Name,
		Source:              n.Source,
	}
}

func (v view) peerOutside(p *outside) device.PeerConfig {
	return device.PeerConfig{
		PublicKey:           p.PublicKey,
		PresharedKey:        p.PresharedKey,
		Endpoint:            p.endpoint,
		PersistentKeepalive: cmp.Or(p.PersistentKeepalive, v.self.Spec.PersistentKeepalive),
		AllowedIPs:          p.prefixes.all(),
		Name:                p.Name,
		Source:              p.Source,
	}
}

// behind is what is reached through the tunnel to a node: its own, and where it carries a
// location, all of that; inside a location, all the rest of the mesh behind the leader.
func (v view) behind(n *member) []netip.Prefix {
	if v.Settings.Topology != ByLocation || n.segment.leader != n {
		return n.prefixes.all()
	}
	var list []netip.Prefix
	if n.segment != v.self.segment {
		for _, other := range n.segment.members {
			list = append(list, other.prefixes.all()...)
		}
		return sorted(list)
	}
	list = n.prefixes.all()
	for _, other := range v.members {
		if other.segment != n.segment {
			list = append(list, other.prefixes.all()...)
		}
	}
	for _, p := range v.outside {
		list = append(list, p.prefixes.all()...)
	}
	return sorted(list)
}

// keepalive is the node's own towards all its peers. Without one, a node that has no address at
// which others could reach it is behind a NAT, and keeps the NAT's memory fresh; the one that it
// speaks with need not.
func (v view) keepalive(n *member) time.Duration {
	if k := v.self.Spec.PersistentKeepalive; k != 0 {
		return k
	}
	if v.options.Keepalive < 0 || v.self.reachable() || v.self.near(n) {
		return 0
	}
	return cmp.Or(v.options.Keepalive, DefaultKeepalive)
}

// near reports whether two nodes reach each other by their internal IPs.
func (n *member) near(other *member) bool {
	return n.Spec.Location == other.Spec.Location && len(other.internalEndpoints(n)) > 0
}
