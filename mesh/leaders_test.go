package mesh

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// leads returns who leads berlin, of which a and b are the nodes, once all have claimed what they
// are to.
func leads(t *testing.T, change func(a, b, oslo *Node)) (name string, claims map[string]uint64) {
	t.Helper()
	s := cities(Settings{Topology: ByLocation})
	change(&s.Nodes[0], &s.Nodes[1], &s.Nodes[2])
	claims = claimLeads(t, &s)
	for _, p := range plans(s) {
		if got := p.leaderOf("location:berlin"); name != "" && got != name {
			t.Fatalf("nodes disagree: %s and %s", name, got)
		} else {
			name = got
		}
	}
	return name, claims
}

// claimLeads lets every node publish its claim until nobody has more to say.
func claimLeads(t *testing.T, s *Snapshot) map[string]uint64 {
	t.Helper()
	for range 10 {
		claims, stable := make(map[string]uint64), true
		for i := range s.Nodes {
			plan, _ := MakePlan(*s, s.Nodes[i].Name, Options{})
			claims[s.Nodes[i].Name] = plan.Publish.Leads
			stable = stable && plan.Publish.Leads == s.Nodes[i].Status.Leads
			s.Nodes[i].Status.Leads = plan.Publish.Leads
		}
		if stable {
			return claims
		}
	}
	t.Fatal("the claims do not settle")
	return nil
}

func (p Plan) leaderOf(location string) string {
	for _, l := range p.Leaders {
		if l.Location == location {
			return l.Leader
		}
	}
	return ""
}

func TestLeaders(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(a, b, oslo *Node)
		want   string
	}{
		{"nobody leads: the oldest", func(a, b, oslo *Node) {}, "a"},
		{"nobody leads: who wishes", func(a, b, oslo *Node) { b.Spec.Leader = true }, "b"},
		{"nobody leads: who can be reached", func(a, b, oslo *Node) { a.Status.Endpoints = nil }, "b"},
		{"who leads stays, whatever another wishes", func(a, b, oslo *Node) { a.Status.Leads = 1; b.Spec.Leader = true }, "a"},
		{"a younger one that leads stays", func(a, b, oslo *Node) { b.Status.Leads = 1 }, "b"},
		{"two claim: the later term", func(a, b, oslo *Node) { a.Status.Leads, b.Status.Leads = 1, 2 }, "b"},
		{"two claim one term: the older", func(a, b, oslo *Node) { a.Status.Leads, b.Status.Leads = 2, 2 }, "a"},
		{"not ready: another", func(a, b, oslo *Node) { a.Status.Leads, a.NotReady = 1, true }, "b"},
		{"none is ready: who led", func(a, b, oslo *Node) { b.Status.Leads, a.NotReady, b.NotReady = 1, true, true }, "b"},
		{"its neighbours do not hear it", func(a, b, oslo *Node) { a.Status.Leads, b.Status.Unreachable = 1, []string{"a"} }, "b"},
		{"one of two other locations does not hear it", func(a, b, oslo *Node) { a.Status.Leads, oslo.Status.Unreachable = 1, []string{"a"} }, "a"},
		{"one says it again and again: one voice", func(a, b, oslo *Node) {
			a.Status.Leads, oslo.Status.Unreachable = 1, []string{"a", "a", "a"}
		}, "a"},
		{"a term that cannot be", func(a, b, oslo *Node) { a.Status.Leads = 1<<64 - 1 }, "a"},
		{"a term that cannot be, of one that fails", func(a, b, oslo *Node) {
			a.Status.Leads, b.Status.Unreachable = 1<<64-1, []string{"a"}
		}, "b"},
		{"who is dead accuses nobody", func(a, b, oslo *Node) {
			b.Status.Leads, b.Status.Unreachable = 2, []string{"a"} // as it was when it died
			a.Status.Unreachable = []string{"b"}
			oslo.Status.Leads, oslo.Status.Unreachable = 1, []string{"b"}
		}, "b"}, // one of two other locations is not enough
		{"it accuses itself: of no weight", func(a, b, oslo *Node) { a.Status.Leads, a.Status.Unreachable = 1, []string{"a"} }, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := leads(t, tt.change); got != tt.want {
				t.Errorf("%s leads, want %s", got, tt.want)
			}
		})
	}
}

func TestALeaderNotHeardByMostLocationsIsReplaced(t *testing.T) {
	s := cities(Settings{Topology: ByLocation})
	s.Nodes[0].Status.Leads = 1
	s.Nodes[2].Status.Unreachable = []string{"a"}
	s.Nodes[4].Status.Unreachable = []string{"a"}
	claimLeads(t, &s)
	for _, n := range []string{"a", "b", "c", "f"} {
		plan, _ := MakePlan(s, n, Options{})
		if got := plan.leaderOf("location:berlin"); got != "b" {
			t.Errorf("%s sees %s lead berlin, want b", n, got)
		}
	}
}

// Who does not see yet that the leader failed, or that another claims its place, takes the way
// by the old one; nothing goes round.
func TestNothingGoesRoundWhileSomeKnowMoreThanOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cities(Settings{Topology: ByLocation})
		for i := range 3 { // berlin has three more
			n := node(10+i, "berlin")
			s.Nodes = append(s.Nodes, n)
		}
		history := []Snapshot{s}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			next := history[len(history)-1]
			next.Nodes = slices.Clone(next.Nodes)
			n := &next.Nodes[rapid.IntRange(0, len(next.Nodes)-1).Draw(t, "who")]
			if rapid.Bool().Draw(t, "claims") {
				// It acts on anything that has been to see, but knows its own claims.
				seen := history[rapid.IntRange(0, len(history)-1).Draw(t, "seen")]
				seen = withOwn(seen, *n)
				plan, _ := MakePlan(seen, n.Name, Options{})
				n.Status.Leads = plan.Publish.Leads
			} else {
				n.Status.Unreachable = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "k"}), 0, 2).Draw(t, "accuses")
			}
			history = append(history, next)
		}
		all := make(map[string]Plan)
		for _, n := range history[len(history)-1].Nodes {
			seen := history[rapid.IntRange(0, len(history)-1).Draw(t, "view of "+n.Name)]
			all[n.Name], _ = MakePlan(withOwn(seen, n), n.Name, Options{})
		}
		w := newWires(newMesh(s), all)
		for from := range all {
			for _, to := range newMesh(s).members {
				err := w.send(from, to.Name, all[from].Host.Firewall.Local[0].Addr(), to.prefixes.mesh[0])
				if err != nil && strings.Contains(err.Error(), "still under way") {
					t.Fatalf("from %s to %s: %v", from, to.Name, err)
				}
			}
		}
	})
}

// withOwn is what a node sees when it knows of itself what is true now.
func withOwn(s Snapshot, own Node) Snapshot {
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		if s.Nodes[i].Name == own.Name {
			s.Nodes[i] = own
		}
	}
	return s
}

// A dead node's last word against another does not keep that one from leading.
func TestTheDeadAccuseNobody(t *testing.T) {
	s := cities(Settings{Topology: ByLocation})
	s.Nodes[1].Status.Leads, s.Nodes[1].Status.Unreachable = 2, []string{"a"}
	s.Nodes[0].Status.Unreachable = []string{"b"}
	s.Nodes[2].Status.Unreachable = []string{"b"}
	s.Nodes[4].Status.Unreachable = []string{"b"}
	if claims := claimLeads(t, &s); claims["a"] != 3 {
		t.Errorf("the terms are %v, want 3 for a", claims)
	}
}

// A location that is cut off hears nobody, and nobody hears it. The others stay as they are.
func TestALocationThatIsCutOffMovesNoLeaderElsewhere(t *testing.T) {
	s := cities(Settings{Topology: ByLocation})
	claimLeads(t, &s)
	s.Nodes[0].Status.Unreachable = []string{"c", "e"} // berlin, with its second leader after its first
	s.Nodes[1].Status.Unreachable = []string{"c", "e", "a"}
	s.Nodes[2].Status.Unreachable = []string{"a", "b"}
	s.Nodes[4].Status.Unreachable = []string{"a", "b"}
	claims := claimLeads(t, &s)
	if claims["c"] != 1 || claims["e"] != 1 {
		t.Errorf("the terms are %v, want c and e to lead as before", claims)
	}
}

func TestANewLeaderTakesATermAboveAllOthers(t *testing.T) {
	_, claims := leads(t, func(a, b, oslo *Node) { a.Status.Leads, a.NotReady = 7, true })
	if claims["b"] != 8 || claims["a"] != 0 {
		t.Errorf("the terms are %v, want 8 for b and none for a", claims)
	}
}

func TestALeaderKeepsItsTerm(t *testing.T) {
	_, claims := leads(t, func(a, b, oslo *Node) { a.Status.Leads = 7 })
	if claims["a"] != 7 || claims["b"] != 0 {
		t.Errorf("the terms are %v, want 7 for a as before", claims)
	}
}

func TestALocationOfOneNeedsNoClaim(t *testing.T) {
	s := cities(Settings{Topology: ByLocation})
	s.Nodes[0].Spec.Location = "alone"
	if plan, _ := MakePlan(s, "a", Options{}); plan.Publish.Leads != 0 {
		t.Errorf("a claims term %d, want none", plan.Publish.Leads)
	}
}
