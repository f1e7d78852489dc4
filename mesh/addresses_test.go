package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAddressesStayWhenOthersComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Snapshot
		s.Settings = dual(Settings{})
		for i := range 20 {
			n := node(i, "")
			n.Status.MeshAddresses = nil
			s.Nodes = append(s.Nodes, n)
		}
		settle(&s)
		before := map[string][]netip.Addr{}
		for _, n := range s.Nodes {
			before[n.Name] = n.Status.MeshAddresses
		}
		keep := rapid.SliceOfNDistinct(rapid.IntRange(0, 19), 1, 19, rapid.ID[int]).Draw(t, "stay")
		var left []Node
		for _, i := range keep {
			left = append(left, s.Nodes[i])
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "come") {
			n := node(100+i, "")
			n.Status.MeshAddresses = nil
			left = append(left, n)
		}
		s.Nodes = left
		settle(&s)
		seen := map[netip.Addr]string{}
		for _, n := range s.Nodes {
			if old, was := before[n.Name]; was && !slices.Equal(old, n.Status.MeshAddresses) {
				t.Fatalf("%s had %v and has %v", n.Name, old, n.Status.MeshAddresses)
			}
			for _, a := range n.Status.MeshAddresses {
				if seen[a] != "" {
					t.Fatalf("%s and %s both have %s", n.Name, seen[a], a)
				}
				seen[a] = n.Name
			}
			if len(n.Status.MeshAddresses) != 2 {
				t.Fatalf("%s has %v, want one of each family", n.Name, n.Status.MeshAddresses)
			}
		}
	})
}

// settle lets every node publish, one after the other, until nobody has more to say.
func settle(s *Snapshot) {
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	for range 5 {
		if !claimAll(s, names) {
			return
		}
	}
}

func TestASmallSubnetIsFilledToItsLastAddress(t *testing.T) {
	s := Snapshot{Settings: Settings{Subnets: []netip.Prefix{prefix("10.4.0.0/29")}}}
	for i := range 7 {
		n := node(i, "")
		n.Status.MeshAddresses = nil
		s.Nodes = append(s.Nodes, n)
	}
	settle(&s)
	without := 0
	for _, n := range s.Nodes {
		if len(n.Status.MeshAddresses) == 0 {
			without++
			_, problems := MakePlan(s, n.Name, Options{})
			if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Reason == AddressesExhausted && p.Subject.Name == n.Name }) {
				t.Errorf("%s has no address and is not told: %v", n.Name, problems)
			}
		}
	}
	if without != 1 {
		t.Errorf("%d of 7 nodes have no address, want 1: six are usable", without)
	}
}

func TestOfTwoClaimsToOneAddressTheOlderStands(t *testing.T) {
	s := Snapshot{Nodes: []Node{node(0, ""), node(1, "")}}
	s.Nodes[1].Status.MeshAddresses = s.Nodes[0].Status.MeshAddresses
	older, _ := MakePlan(s, "a", Options{})
	younger, _ := MakePlan(s, "b", Options{})
	if got := older.Publish.MeshAddresses[0]; got != addr("10.4.0.1") {
		t.Errorf("the older has %s, want what it claims", got)
	}
	if got := younger.Publish.MeshAddresses[0]; got == addr("10.4.0.1") || !prefix("10.4.0.0/16").Contains(got) {
		t.Errorf("the younger takes %s, want another of the subnet", got)
	}
}
