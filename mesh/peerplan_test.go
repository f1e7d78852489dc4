package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What an outside peer is told fits what the nodes have: the same tunnels, and no address twice.
func TestAPeerHasTheOtherEndsOfTheTunnelsThatNodesHaveWithIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyWorld(t)
		for _, p := range s.Peers {
			own, _ := PlanPeer(s, p.Name)
			if own.Self == "" {
				continue
			}
			m := newMesh(s)
			key := m.outside[slices.IndexFunc(m.outside, func(o *outside) bool { return o.Name == p.Name })].PublicKey
			var want []string
			for _, n := range m.members {
				plan, _ := MakePlan(s, n.Name, Options{})
				for _, peer := range plan.Device.Peers {
					if peer.PublicKey == key {
						want = append(want, n.Name)
					}
				}
			}
			var got []string
			owner := make(map[netip.Prefix]string)
			for _, peer := range own.Device.Peers {
				got = append(got, peer.Name)
				for _, prefix := range peer.AllowedIPs {
					if other := owner[prefix]; other != "" {
						t.Fatalf("peer %s has %s at %s and at %s", p.Name, prefix, other, peer.Name)
					}
					owner[prefix] = peer.Name
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("peer %s has tunnels with %v, and %v have one with it", p.Name, got, want)
			}
		}
	})
}

func TestAPeerCallsTheLeadersAndReachesServices(t *testing.T) {
	s := cities(Settings{Topology: ByLocation, ServiceCIDRs: []netip.Prefix{prefix("10.96.0.0/12")}})
	claimLeads(t, &s)
	plan, problems := PlanPeer(s, "laptop")
	if len(problems) > 0 || len(plan.Device.Peers) != 3 {
		t.Fatalf("%d peers, problems %v", len(plan.Device.Peers), problems)
	}
	services := 0
	for _, p := range plan.Device.Peers {
		if slices.Contains(p.AllowedIPs, prefix("10.96.0.0/12")) {
			services++
		}
		end, _ := p.Endpoint.AddrPort()
		if p.Endpoint.IsZero() || p.PersistentKeepalive == 0 || slices.Contains(p.AllowedIPs, netip.PrefixFrom(end.Addr(), end.Addr().BitLen())) {
			t.Errorf("peer %+v", p)
		}
	}
	if services != 1 || len(plan.Addresses) == 0 || plan.MTU != DefaultPeerMTU {
		t.Errorf("services at %d peers, addresses %v, MTU %d", services, plan.Addresses, plan.MTU)
	}
	if _, problems := PlanPeer(s, "nobody"); len(problems) == 0 || problems[len(problems)-1].Reason != NoMember {
		t.Errorf("a peer that is not there: %v", problems)
	}
}

func TestFreeAddressesAreNobodysAndAlwaysTheSame(t *testing.T) {
	s := cities(Settings{})
	got := FreeAddresses(s, key("phone"))
	if len(got) != 2 || !slices.Equal(got, FreeAddresses(s, key("phone"))) {
		t.Fatalf("FreeAddresses = %v", got)
	}
	s.Peers = append(s.Peers, Peer{Identity: Identity{Name: "phone"}, PublicKey: key("phone"), MeshAddresses: got})
	if plan, problems := PlanPeer(s, "phone"); len(problems) > 0 || len(plan.Addresses) != 2 {
		t.Errorf("with them: %v, %v", plan.Addresses, problems)
	}
	if again := FreeAddresses(s, key("phone")); slices.Contains(got, again[0]) {
		t.Errorf("%v is proposed though it is taken", again)
	}
}
