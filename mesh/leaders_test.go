package mesh

import (
	"testing"
)

// leads returns who leads berlin, of which a and b are the nodes.
func leads(t *testing.T, change func(a, b, oslo *Node)) (name string, claims map[string]uint64) {
	t.Helper()
	s := cities(Settings{Topology: ByLocation})
	change(&s.Nodes[0], &s.Nodes[1], &s.Nodes[2])
	claims = make(map[string]uint64)
	for n, p := range plans(s) {
		claims[n] = p.Publish.Leads
		for _, l := range p.Leaders {
			switch {
			case l.Location != "location:berlin":
			case name != "" && name != l.Leader:
				t.Fatalf("nodes disagree: %s and %s", name, l.Leader)
			default:
				name = l.Leader
			}
		}
	}
	return name, claims
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
	for _, n := range []string{"a", "b", "c", "f"} {
		plan, _ := MakePlan(s, n, Options{})
		if got := plan.Leaders[0].Leader; got != "b" {
			t.Errorf("%s sees %s lead berlin, want b", n, got)
		}
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
