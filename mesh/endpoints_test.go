package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device"
)

// ways are the endpoints by which one node of the facts tries to reach another, the first that
// has not failed first.
func ways(t *testing.T, s Snapshot, from, to string) (list []string) {
	t.Helper()
	s.Local.Paths = map[device.PublicKey]Path{}
	for range 9 {
		plan, _ := MakePlan(s, from, Options{})
		i := slices.IndexFunc(plan.Device.Peers, func(p device.PeerConfig) bool { return p.Name == to })
		if i < 0 {
			t.Fatalf("%s does not peer with %s", from, to)
		}
		p := plan.Device.Peers[i]
		if p.Endpoint.IsZero() || slices.Contains(list, p.Endpoint.String()) {
			return list
		}
		list = append(list, p.Endpoint.String())
		path := s.Local.Paths[p.PublicKey]
		path.Failed = append(slices.Clone(path.Failed), p.Endpoint)
		s.Local.Paths[p.PublicKey] = path
	}
	return list
}

func TestWaysToReachANode(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s *Snapshot, a, b *Node)
		want   []string
	}{
		{"in another location: what it finds, then its internal IP", func(s *Snapshot, a, b *Node) {}, []string{"198.18.0.2:51820", "172.16.0.2:51820"}},
		{"in one location: its internal IP first", func(s *Snapshot, a, b *Node) { b.Spec.Location = a.Spec.Location }, []string{"172.16.0.2:51820", "198.18.0.2:51820"}},
		{"declared: that before what is found", func(s *Snapshot, a, b *Node) { b.Spec.Endpoint = endpoint("b.example:7") }, []string{"b.example:7", "198.18.0.2:51820", "172.16.0.2:7"}},
		{"seen by others: after what it says itself", func(s *Snapshot, a, b *Node) {
			s.Nodes[2].Status.Learned = map[device.PublicKey]netip.AddrPort{key("b"): ap("203.0.113.1:9")}
		}, []string{"198.18.0.2:51820", "203.0.113.1:9", "172.16.0.2:51820"}},
		{"the way that most see before others", func(s *Snapshot, a, b *Node) {
			b.Status.Endpoints = nil
			for i, seen := range []string{"203.0.113.1:9", "203.0.113.2:9", "203.0.113.2:9"} {
				s.Nodes[2+i].Status.Learned = map[device.PublicKey]netip.AddrPort{key("b"): ap(seen)}
			}
		}, []string{"203.0.113.2:9", "203.0.113.1:9", "172.16.0.2:51820"}},
		{"addresses inside the mesh are no way", func(s *Snapshot, a, b *Node) {
			b.Status.InternalIPs = []netip.Addr{addr("10.42.1.1"), addr("fd42:0:0:1::1"), addr("10.4.0.9")}
			b.Status.Endpoints = []netip.AddrPort{ap("[fd42:0:0:1::1]:51820")}
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Snapshot{Settings: dual(Settings{})}
			for i := range 5 {
				s.Nodes = append(s.Nodes, node(i, string(rune('p'+i))))
			}
			tt.change(&s, &s.Nodes[0], &s.Nodes[1])
			if diff := cmp.Diff(tt.want, ways(t, s, "a", "b")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestABetterWayIsNoReasonToTouchASessionThatLives(t *testing.T) {
	s := Snapshot{Nodes: []Node{node(0, "x"), node(1, "y")}}
	used := endpoint("172.16.0.2:51820")
	s.Local.Paths = map[device.PublicKey]Path{key("b"): {Verdict: Up, Declared: used}}
	plan, _ := MakePlan(s, "a", Options{})
	if got := plan.Device.Peers[0].Endpoint; got != used {
		t.Errorf("%s takes the place of %s", got, used)
	}
	s.Nodes[1].Spec.Endpoint = endpoint("192.0.2.9:1")
	plan, _ = MakePlan(s, "a", Options{})
	if got := plan.Device.Peers[0].Endpoint; got != endpoint("192.0.2.9:1") {
		t.Errorf("%s is used though an administrator says otherwise", got)
	}
}
