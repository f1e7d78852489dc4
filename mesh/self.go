package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// world is the snapshot as this node plans with it: what it knows of itself goes before what a
// source repeats of it. The first look of a run takes over what it claimed before it was
// restarted.
func (a *Agent) world(s Snapshot, facts HostFacts, look bool) Snapshot {
	s.Nodes = slices.Clone(s.Nodes)
	s.Settings = s.Settings.Or(a.o.Settings)
	i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == a.o.Node })
	if i < 0 {
		i = len(s.Nodes)
		s.Nodes = append(s.Nodes, Node{Identity: Identity{Name: a.o.Node, Undeclared: true, Source: "this agent"}})
	}
	self := &s.Nodes[i]
	if look {
		a.inherit(self.Status)
		a.observe(self, facts)
	}
	a.published, self.Status = self.Status, a.own
	s.Local = Local{Links: facts.Links}
	if a.o.ControlPlane != nil {
		s.Local.ControlPlane = a.o.ControlPlane()
	}
	if a.prober != nil {
		a.look(&s)
	}
	self.Status = a.own
	return s
}

// inherit takes over the claims of the run before, when they were made with the same key.
func (a *Agent) inherit(before NodeStatus) {
	if before.PublicKey != a.own.PublicKey {
		return
	}
	if len(a.own.MeshAddresses) == 0 {
		a.own.MeshAddresses = before.MeshAddresses
	}
	if a.own.ListenPort == 0 { // the first look of this run
		a.own.Leads, a.own.Learned = before.Leads, before.Learned
	}
}

// observe notes what the machine tells of itself.
func (a *Agent) observe(self *Node, facts HostFacts) {
	a.own.ListenPort = cmp.Or(self.Spec.ListenPort, self.Spec.Endpoint.Port, DefaultPort)
	a.own.InternalIPs = facts.InternalIPs
	a.own.Endpoints = nil
	for _, g := range facts.Global {
		a.own.Endpoints = append(a.own.Endpoints, netip.AddrPortFrom(g, a.own.ListenPort))
	}
}

// look takes in what the tests of paths found.
func (a *Agent) look(s *Snapshot) {
	found := a.prober.findings()
	s.Local.Paths = found.paths
	a.own.Unreachable = found.unreachable
	learned := make(map[device.PublicKey]netip.AddrPort)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Status.Leads = max(n.Status.Leads, found.paths[n.Status.PublicKey].heard())
		live := found.paths[n.Status.PublicKey].Live
		switch {
		case !live.IsValid():
			if old, ok := a.own.Learned[n.Status.PublicKey]; ok {
				learned[n.Status.PublicKey] = old
			}
		case !n.saysItself(live):
			learned[n.Status.PublicKey] = live
		}
	}
	if !maps.Equal(learned, a.own.Learned) {
		a.own.Learned = learned
	}
}

// heard is the claim that a member told this node itself. It may be later than what the sources
// say, and never earlier than what they will.
func (p Path) heard() uint64 {
	if p.Leads > lastTerm {
		return 0
	}
	return p.Leads
}

// saysItself reports whether an address is one that the node itself, or its administrator, gives.
func (n *Node) saysItself(a netip.AddrPort) bool {
	if declared, ok := n.Spec.Endpoint.AddrPort(); ok && declared == a {
		return true
	}
	return slices.Contains(n.Status.Endpoints, a) ||
		slices.Contains(n.Status.InternalIPs, a.Addr()) || slices.Contains(n.Spec.InternalIPs, a.Addr())
}

// equal reports whether two statuses say the same.
func (s NodeStatus) equal(other NodeStatus) bool {
	return s.PublicKey == other.PublicKey &&
		cmp.Or(s.Mode, TUN) == cmp.Or(other.Mode, TUN) &&
		s.ListenPort == other.ListenPort &&
		s.Leads == other.Leads &&
		slices.Equal(s.InternalIPs, other.InternalIPs) &&
		slices.Equal(s.Endpoints, other.Endpoints) &&
		slices.Equal(s.MeshAddresses, other.MeshAddresses) &&
		slices.Equal(s.Unreachable, other.Unreachable) &&
		maps.Equal(s.Learned, other.Learned)
}
