package mesh

import (
	"cmp"
	"slices"
	"strings"
)

// byAge are the members, the oldest first.
func (m *mesh) byAge() []*member {
	list := slices.Clone(m.members)
	slices.SortFunc(list, func(a, b *member) int { return a.compare(b.Identity) })
	return list
}

// segment is the nodes that need no tunnel of the topology between them: those of one location,
// or one node alone.
type segment struct {
	name    string // "location:berlin" or "node:a"
	members []*member
	// leader is who carries it, in the location topology; of a single node, that node.
	leader *member
	// candidate is who ought to: itself the leader, or the one that shall claim to be.
	candidate *member
}

// divide puts every member into its segment.
func (m *mesh) divide() {
	byName := make(map[string]*segment)
	for _, n := range m.members {
		name := m.segmentOf(n)
		s := byName[name]
		if s == nil {
			s = &segment{name: name}
			byName[name] = s
			m.segments = append(m.segments, s)
		}
		n.segment = s
		s.members = append(s.members, n)
	}
	slices.SortFunc(m.segments, func(a, b *segment) int { return strings.Compare(a.name, b.name) })
}

func (m *mesh) segmentOf(n *member) string {
	if m.Settings.Topology == Full || len(n.prefixes.internal) == 0 || n.Status.Mode == Netstack {
		return "node:" + n.Name
	}
	return "location:" + n.Spec.Location
}

// elect finds the leader of each segment from what all nodes can see, so that all that see the
// same agree.
//
// Who leads says so by a term (NodeStatus.Leads), and leads for everybody until another says so
// with a later one: a node knows its own claim before all others do, so that none sends to a
// leader what that one would send back. Before anybody has said so, the oldest leads: that, too,
// all see alike. The candidate is who claims next: the leader itself as
// long as it is fit. A wish decides only where nobody leads.
func (m *mesh) elect() {
	mute := m.mute()
	for _, s := range m.segments {
		s.candidate = slices.MinFunc(s.members, func(a, b *member) int {
			return cmp.Or(
				falseFirst(mute[a], mute[b]),
				falseFirst(a.NotReady, b.NotReady),
				-cmp.Compare(a.Status.Leads, b.Status.Leads),
				-falseFirst(a.wish, b.wish),
				-falseFirst(a.reachable(), b.reachable()),
				a.compare(b.Identity),
			)
		})
		s.leader = slices.MinFunc(s.members, func(a, b *member) int {
			return cmp.Or(-cmp.Compare(a.Status.Leads, b.Status.Leads), a.compare(b.Identity))
		})
	}
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// reachable reports whether nodes of other locations can speak to this one first.
func (n *member) reachable() bool { return !n.declared.IsZero() || len(n.Status.Endpoints) > 0 }

// mute finds the members of which more than half of those that test them say that they do not
// answer, on one of their two sides: the others of the segment, or the other segments, each by
// its leader.
func (m *mesh) mute() map[*member]bool {
	type votes struct{ near, far int }
	count := make(map[*member]votes)
	for _, n := range m.members {
		for _, name := range n.Status.Unreachable {
			accused := m.byName[name]
			if accused == nil || accused == n {
				continue
			}
			v := count[accused]
			if accused.segment == n.segment {
				v.near++
			} else {
				v.far++
			}
			count[accused] = v
		}
	}
	mute := make(map[*member]bool)
	for accused, v := range count {
		near, far := len(accused.segment.members)-1, len(m.segments)-1
		if 2*v.near > near || 2*v.far > far {
			mute[accused] = true
		}
	}
	return mute
}

// leadership is what the plan shows of it.
func (m *mesh) leadership() (list []Leadership) {
	if m.Settings.Topology != ByLocation {
		return nil
	}
	for _, s := range m.segments {
		list = append(list, Leadership{Location: s.name, Leader: s.leader.Name})
	}
	return list
}

// leads is the node's own claim. A leader withdraws it when another has a later one.
func (v view) leads() uint64 {
	s := v.self.segment
	if v.Settings.Topology != ByLocation || len(s.members) == 1 {
		return 0
	}
	highest := s.leader.Status.Leads
	switch {
	case s.leader == v.self && highest > 0:
		return highest
	case s.candidate == v.self:
		return highest + 1
	}
	return 0
}
