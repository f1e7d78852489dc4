package mesh

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func names(s *Store) (list []string) {
	snap, _ := s.Snapshot()
	for _, n := range snap.Nodes {
		list = append(list, n.Name)
	}
	slices.Sort(list)
	return list
}

func nodes(count int) (list []Node) {
	for i := range count {
		list = append(list, node(i, ""))
	}
	return list
}

func TestAbsenceCountsOnlyInASyncedUpdate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		update Update
		want   []string
		reason Reason
	}{
		{"not synced: kept", Update{Nodes: nodes(1)}, []string{"a", "b", "c", "d"}, ""},
		{"synced: gone", Update{Nodes: nodes(1), Synced: true}, []string{"a"}, ""},
		{"all of four at once: held", Update{Synced: true}, []string{"a", "b", "c", "d"}, RemovalHeld},
		{"confirmed: gone", Update{Synced: true, Confirmed: true}, nil, ""},
		{"down: kept", Update{Synced: true, Confirmed: true, Down: "no such directory"}, []string{"a", "b", "c", "d"}, SourceDown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStore()
			s.Put(Update{Source: "x", Nodes: nodes(4), Synced: true})
			tt.update.Source = "x"
			s.Put(tt.update)
			if diff := cmp.Diff(tt.want, names(s)); diff != "" {
				t.Error(diff)
			}
			_, problems := s.Snapshot()
			var reason Reason
			for _, p := range problems {
				reason = p.Reason
			}
			if reason != tt.reason {
				t.Errorf("problem is %q, want %q", reason, tt.reason)
			}
		})
	}
}

func TestAQuarterOfTheMeshMayGoAtOnce(t *testing.T) {
	s := NewStore()
	s.Put(Update{Source: "x", Nodes: nodes(40), Synced: true})
	s.Put(Update{Source: "x", Nodes: nodes(30), Synced: true})
	if got := len(names(s)); got != 30 {
		t.Errorf("%d nodes are left of 40, want 30", got)
	}
	s.Put(Update{Source: "x", Nodes: nodes(22), Synced: true})
	if got := len(names(s)); got != 30 {
		t.Errorf("%d nodes are left of 30 though more than a quarter went at once", got)
	}
}

func TestWhatIsAddedCountsWhileRemovalsAreHeld(t *testing.T) {
	s := NewStore()
	s.Put(Update{Source: "x", Nodes: nodes(8), Synced: true})
	s.Put(Update{Source: "x", Nodes: []Node{node(20, "")}, Synced: true})
	if got := len(names(s)); got != 9 {
		t.Errorf("there are %d nodes, want the 8 and the new one", got)
	}
}

func TestADumpGivesWayToItsSource(t *testing.T) {
	s := NewStore()
	s.Put(Update{Source: "x", Nodes: nodes(4), Peers: []Peer{laptop()}, Settings: &Settings{Topology: Cross}, Synced: true})
	again := NewStore()
	for _, u := range s.Dump() {
		again.Recall(u)
	}
	if again.Synced() || again.Heard() > 0 {
		t.Error("what was kept counts as what the source says")
	}
	if snap, _ := again.Snapshot(); len(snap.Nodes) != 4 || len(snap.Peers) != 1 || snap.Settings.Topology != Cross {
		t.Errorf("the store after a restart holds %+v", snap)
	}
	again.Put(Update{Source: "x", Nodes: nodes(3), Synced: true})
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(again)); diff != "" {
		t.Error(diff)
	}
}

func TestSourcesAreMerged(t *testing.T) {
	s := NewStore()
	s.Put(Update{Source: "x", Nodes: nodes(2), Synced: true})
	s.Put(Update{Source: "y", Nodes: []Node{node(2, "")}, Synced: true})
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(s)); diff != "" {
		t.Error(diff)
	}
	select {
	case <-s.Changed():
	default:
		t.Error("nobody was told")
	}
}
