package mesh

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The goldens are plans as an operator reads them.
func TestPlans(t *testing.T) {
	for _, tt := range []struct {
		name string
		self string
		s    Snapshot
	}{
		{"full", "a", cities(Settings{Topology: Full})},
		{"cross", "a", cities(Settings{Topology: Cross})},
		{"location-leader", "a", cities(Settings{Topology: ByLocation})},
		{"location-member", "b", cities(Settings{Topology: ByLocation})},
		{"location-encrypted", "b", cities(Settings{Topology: ByLocation, Inside: Encrypted})},
		{"location-vxlan", "b", cities(Settings{Topology: ByLocation, Inside: VXLAN})},
		{"problems", "a", troubled()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan, problems := MakePlan(tt.s, tt.self, Options{})
			var b strings.Builder
			b.WriteString(plan.String())
			for _, p := range problems {
				fmt.Fprintf(&b, "problem %s: %s\n", p.Reason, p)
			}
			golden(t, tt.name, b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

// troubled is a mesh in which every kind of mistake was made once.
func troubled() Snapshot {
	s := cities(Settings{ServiceCIDRs: []netip.Prefix{prefix("10.96.0.0/12")}, Topology: "ring"})
	s.Local.Links = []netip.Prefix{prefix("192.168.77.5/24")}
	b, c, d, e, f := &s.Nodes[1], &s.Nodes[2], &s.Nodes[3], &s.Nodes[4], &s.Nodes[5]
	b.Status.PublicKey = key("a")
	c.Status.InternalIPs = s.Nodes[0].Status.InternalIPs
	d.PodCIDRs = append(d.PodCIDRs, prefix("10.42.0.128/25"))
	d.Status.MeshAddresses = []netip.Addr{addr("10.4.0.1"), addr("fd99::1")}
	e.Spec.Endpoint = device.Endpoint{Host: "127.0.0.1", Port: 51820}
	e.Spec.PersistentKeepalive = time.Millisecond
	e.Spec.MTU = 99
	e.Spec.ExtraPrefixes = []netip.Prefix{{}, prefix("0.0.0.0/0"), prefix("10.96.0.10/32"), prefix("224.0.0.0/8")}
	f.Status.PublicKey = device.PublicKey{}
	tablet := laptop()
	tablet.Name, tablet.PublicKey, tablet.Created = "tablet", key("tablet"), tablet.Created.Add(time.Hour)
	tablet.AllowedIPs = append(tablet.AllowedIPs, prefix("172.16.0.1/32"), prefix("198.18.0.1/32"))
	s.Peers = append(s.Peers, tablet)
	return s
}

func TestAMeshThatDoesNotRunYetCanBePlanned(t *testing.T) {
	s := cities(Settings{Topology: ByLocation})
	for i := range s.Nodes {
		s.Nodes[i].Status = NodeStatus{InternalIPs: s.Nodes[i].Status.InternalIPs}
	}
	rehearsed, standIns := Rehearse(s)
	if len(standIns) != len(s.Nodes) {
		t.Errorf("%v have stand-ins, want all", standIns)
	}
	for name, plan := range plans(rehearsed) {
		if len(plan.Host.Addresses) != 2 || len(plan.Host.Routes) == 0 {
			t.Errorf("%s is planned as %s", name, plan)
		}
	}
	if !s.Nodes[0].Status.PublicKey.IsZero() {
		t.Error("the facts themselves were changed")
	}
}
