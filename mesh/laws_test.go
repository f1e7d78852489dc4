package mesh

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"testing"

	"github.com/gaissmai/bart"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stillwire/stillwire/device"
)

// plans are those of all members.
func plans(s Snapshot) map[string]Plan {
	out := make(map[string]Plan)
	for _, n := range newMesh(s).members {
		out[n.Name], _ = MakePlan(s, n.Name, Options{})
	}
	return out
}

func TestTheOrderOfFactsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyWorld(t)
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		shuffled := s
		shuffled.Nodes, shuffled.Peers = slices.Clone(s.Nodes), slices.Clone(s.Peers)
		r.Shuffle(len(shuffled.Nodes), func(i, j int) {
			shuffled.Nodes[i], shuffled.Nodes[j] = shuffled.Nodes[j], shuffled.Nodes[i]
		})
		r.Shuffle(len(shuffled.Peers), func(i, j int) {
			shuffled.Peers[i], shuffled.Peers[j] = shuffled.Peers[j], shuffled.Peers[i]
		})
		for _, n := range s.Nodes {
			plan, problems := MakePlan(s, n.Name, Options{})
			again, same := MakePlan(shuffled, n.Name, Options{})
			if diff := cmp.Diff(plan.String(), again.String()); diff != "" {
				t.Fatalf("plan of %s: %s", n.Name, diff)
			}
			if diff := cmp.Diff(problems, same); diff != "" {
				t.Fatalf("problems seen by %s: %s", n.Name, diff)
			}
		}
	})
}

func TestPeeringIsMutual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := plans(anyWorld(t))
		for a, plan := range all {
			for _, p := range plan.Device.Peers {
				other, isNode := all[p.Name]
				if isNode && !slices.ContainsFunc(other.Device.Peers, func(q device.PeerConfig) bool { return q.Name == a }) {
					t.Fatalf("%s peers with %s, which does not peer with it", a, p.Name)
				}
			}
		}
	})
}

func TestEveryDeviceCanBeApplied(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for name, plan := range plans(anyWorld(t)) {
			if _, err := plan.Device.Normalized(); err != nil {
				t.Fatalf("the device of %s: %v", name, err)
			}
		}
	})
}

func TestRoutesIntoTheTunnelAreAllowedIPs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for name, plan := range plans(anyWorld(t)) {
			crypto := cryptokeyRouting(plan)
			for _, r := range plan.Host.Routes {
				if _, ok := crypto.LookupPrefix(r.Dst); r.Via == ViaTunnel && !ok {
					t.Fatalf("%s routes %s into the tunnel, where no peer has it", name, r.Dst)
				}
			}
			for i := 1; i < len(plan.Host.Routes); i++ {
				if plan.Host.Routes[i-1].Dst == plan.Host.Routes[i].Dst {
					t.Fatalf("%s has two routes to %s", name, plan.Host.Routes[i].Dst)
				}
			}
		}
	})
}

func cryptokeyRouting(p Plan) *bart.Table[string] {
	var t bart.Table[string]
	for _, peer := range p.Device.Peers {
		for _, a := range peer.AllowedIPs {
			t.Insert(a, peer.Name)
		}
	}
	return &t
}

// Whatever is wrong in a mesh, what is left of it carries packets from every member's address to
// every other's, without a loop, past every firewall.
func TestEveryPairOfMembersIsConnected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyWorld(t)
		m := newMesh(s)
		w := newWires(m, plans(s))
		for _, from := range m.members {
			for _, src := range addressesOf(from) {
				for _, to := range m.members {
					for _, dst := range addressesOf(to) {
						if from != to && src.Is4() == dst.Is4() {
							if err := w.send(from.Name, to.Name, src, dst); err != nil {
								t.Fatalf("%s of %s to %s of %s: %v", src, from.Name, dst, to.Name, err)
							}
						}
					}
				}
			}
		}
	})
}

func addressesOf(n *member) (list []netip.Addr) {
	for _, p := range n.prefixes.pods {
		list = append(list, last(p))
	}
	return append(list, n.prefixes.mesh...)
}

// wires carry packets between planned nodes the way kernels and devices would.
type wires struct {
	nodes    map[string]*wired
	internal map[netip.Addr]string
}

type wired struct {
	Plan
	routes    bart.Table[Route]
	forwarded bart.Table[Route]
	crypto    *bart.Table[string]
	sets      map[string]*bart.Table[struct{}]
}

func newWires(m *mesh, all map[string]Plan) wires {
	w := wires{nodes: make(map[string]*wired), internal: make(map[netip.Addr]string)}
	for _, n := range m.members {
		x := &wired{Plan: all[n.Name], crypto: cryptokeyRouting(all[n.Name]), sets: make(map[string]*bart.Table[struct{}])}
		for _, r := range x.Host.Routes {
			x.routes.Insert(r.Dst, r)
		}
		for _, r := range x.Host.Forwarded {
			x.forwarded.Insert(r.Dst, r)
		}
		for _, set := range x.Host.Firewall.Sets() {
			var table bart.Table[struct{}]
			for _, p := range set.Prefixes {
				table.Insert(p, struct{}{})
			}
			x.sets[set.Name] = &table
		}
		w.nodes[n.Name] = x
		for _, a := range n.prefixes.internal {
			w.internal[a] = n.Name
		}
	}
	return w
}

func (x *wired) in(set string, a netip.Addr) bool { return x.sets[set].Contains(a) }

func (w wires) send(at, to string, src, dst netip.Addr) error {
	tunnelled := false // by the hop before
	for hops := 0; at != to; hops++ {
		if hops > 3 {
			return fmt.Errorf("is still under way at %s", at)
		}
		x := w.nodes[at]
		r, ok := x.routes.Lookup(dst)
		if !ok {
			return fmt.Errorf("has no route at %s", at)
		}
		next, err := w.hop(x, r, src, dst, tunnelled)
		if err != nil {
			return err
		}
		at, tunnelled = next, r.Via == ViaTunnel
	}
	if !w.nodes[to].in("local", dst) {
		return fmt.Errorf("arrives at %s, which does not hold it for local", to)
	}
	return nil
}

// crosses reports whether a forwarded packet is turned to the table of its own.
func (x *wired) crosses(src, dst netip.Addr) bool {
	return x.in("outer", dst) && (x.in("local", src) || x.in("behind", src) && !x.in("neighbours", src))
}

// Pods reach the internal IP of every node that the mesh knows, and are answered on the way that
// the tunnels and firewalls allow, also where a tunnel is reached at that address.
func TestPodsReachNodesAndAreAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyWorld(t)
		m := newMesh(s)
		w := newWires(m, plans(s))
		for _, from := range m.members {
			for _, to := range m.members {
				if from == to || to.Status.Mode == Netstack || from.Status.Mode == Netstack {
					continue
				}
				for _, pods := range from.prefixes.pods {
					for _, dst := range to.prefixes.internal {
						if src := last(pods); src.Is4() == dst.Is4() {
							if err := w.visit(from.Name, to.Name, src, dst); err != nil {
								t.Fatalf("%s of %s to the node %s at %s: %v", src, from.Name, to.Name, dst, err)
							}
							if err := w.send(to.Name, from.Name, dst, src); err != nil {
								t.Fatalf("the node %s at %s to %s of %s: %v", to.Name, dst, src, from.Name, err)
							}
						}
					}
				}
			}
		}
	})
}

// visit carries a packet to a node's own address, which is on a link of all nodes of its location.
func (w wires) visit(at, to string, src, dst netip.Addr) error {
	tunnelled := false
	for hops := 0; at != to; hops++ {
		if hops > 3 {
			return fmt.Errorf("is still under way at %s", at)
		}
		x := w.nodes[at]
		r, ok := x.routes.Lookup(dst)
		switch {
		case x.crosses(src, dst):
			r, ok = x.forwarded.Lookup(dst)
		case x.Location == w.nodes[to].Location:
			return nil // the links of a machine go before routes of the mesh
		}
		if !ok {
			return fmt.Errorf("leaves %s for the world", at)
		}
		next, err := w.hop(x, r, src, dst, tunnelled)
		if err != nil {
			return err
		}
		at, tunnelled = next, r.Via == ViaTunnel
	}
	return nil
}

func (w wires) hop(x *wired, r Route, src, dst netip.Addr, tunnelled bool) (next string, err error) {
	if r.Via != ViaTunnel {
		if next = w.internal[r.Gateway]; next == "" {
			return "", fmt.Errorf("is routed at %s to %s, which nobody is", x.Self, r.Gateway)
		}
		return next, nil
	}
	if own := w.internal[src] == x.Self; !own && !tunnelled && !x.in("local", src) && !x.in("behind", src) {
		return "", fmt.Errorf("may not enter the tunnel at %s", x.Self)
	}
	if !x.in("tunnelled", dst) && !x.crosses(src, dst) {
		return "", fmt.Errorf("enters the tunnel at %s without being kept from leaving elsewhere", x.Self)
	}
	if next, _ = x.crypto.Lookup(dst); w.nodes[next] == nil {
		return "", fmt.Errorf("goes at %s to %q, which is no node", x.Self, next)
	}
	y := w.nodes[next]
	if back, _ := y.crypto.Lookup(src); back != x.Self {
		return "", fmt.Errorf("is refused by %s, which has its source behind %q and not behind %s", next, back, x.Self)
	}
	if !y.in("tunnelled", src) && !y.in("outer", src) {
		return "", fmt.Errorf("is held for a spoof by %s", next)
	}
	return next, nil
}

func TestAnUnrelatedNodeChangesNoPresentPeer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyWorld(t)
		s.Settings.Topology = Topology(rapid.SampledFrom([]string{"full", "cross"}).Draw(t, "flat"))
		before := plans(s)
		s.Nodes = append(slices.Clone(s.Nodes), node(200, "new"))
		for name, plan := range plans(s) {
			old, was := before[name]
			if !was {
				continue
			}
			kept := slices.DeleteFunc(slices.Clone(plan.Device.Peers), func(p device.PeerConfig) bool { return p.Name == node(200, "").Name })
			if diff := cmp.Diff(Plan{Device: old.Device}.String(), Plan{Device: device.Config{ListenPort: old.Device.ListenPort, Peers: kept}}.String()); diff != "" {
				t.Fatalf("peers of %s: %s", name, diff)
			}
		}
	})
}
