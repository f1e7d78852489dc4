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
	for _, s := range m.segments {
		s.leader = slices.MinFunc(s.members, func(a, b *member) int {
			return cmp.Or(-cmp.Compare(a.term(), b.term()), a.compare(b.Identity))
		})
	}
	mute := m.mute()
	for _, s := range m.segments {
		s.candidate = slices.MinFunc(s.members, func(a, b *member) int {
			return cmp.Or(
				cmp.Compare(mute[a], mute[b]),
				falseFirst(a.NotReady, b.NotReady),
				-cmp.Compare(a.term(), b.term()),
				-falseFirst(a.wish, b.wish),
				-falseFirst(a.reachable(), b.reachable()),
				a.compare(b.Identity),
			)
		})
	}
}

// lastTerm is the highest that counts. At one claim a second it lasts for longer than the earth.
const lastTerm = 1 << 60

// term is the node's claim to lead, 0 when there is none or it is nonsense.
func (n *member) term() uint64 {
	if n.Status.Leads > lastTerm {
		return 0
	}
	return n.Status.Leads
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

// mute finds the members that do not answer, and on how many of their two sides, as those say who
// test them: half or more of the others of its segment, or more than half of the other segments, of
// which each has one vote, its leader's. Who is mute itself counts neither as a voice nor as a
// silence, as long as anybody else is left.
func (m *mesh) mute() map[*member]int {
	return m.muteBut(m.muteBut(nil))
}

// muteBut is mute with some whose word does not count.
func (m *mesh) muteBut(unheard map[*member]int) map[*member]int {
	mute := make(map[*member]int)
	for _, n := range m.members {
		if accused, heard := accusers(n, m.near(n), unheard); heard > 0 && 2*accused >= heard {
			mute[n]++
		}
		if accused, heard := accusers(n, m.far(n), unheard); heard > 0 && 2*accused > heard {
			mute[n]++
		}
	}
	return mute
}

// near are the other members of the segment, far the leaders of the other segments.
func (m *mesh) near(n *member) []*member {
	return slices.DeleteFunc(slices.Clone(n.segment.members), func(other *member) bool { return other == n })
}

func (m *mesh) far(n *member) (list []*member) {
	for _, s := range m.segments {
		if s != n.segment {
			list = append(list, s.leader)
		}
	}
	return list
}

// accusers counts, of those whose word counts, who says that n does not answer.
func accusers(n *member, voters []*member, unheard map[*member]int) (accused, heard int) {
	count := func(but map[*member]int) (accused, heard int) {
		for _, v := range voters {
			if but[v] > 0 {
				continue
			}
			heard++
			if slices.Contains(v.Status.Unreachable, n.Name) {
				accused++
			}
		}
		return accused, heard
	}
	if accused, heard = count(unheard); heard > 0 {
		return accused, heard
	}
	return count(nil)
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
	highest := s.leader.term()
	switch {
	case s.leader == v.self && highest > 0:
		return highest
	case s.candidate == v.self:
		return highest + 1
	}
	return 0
}
