package kilo

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/mesh"
)

func TestFactsSayWhoseWordAValueIs(t *testing.T) {
	read := func(annotations map[string]string) mesh.Node {
		n, _ := ReadNode(NodeObject{Name: "a", PodCIDR: "10.2.0.0/24", Annotations: annotations}, DefaultLocationLabel)
		return n.Fact(mesh.Identity{Name: "a"})
	}
	found := read(map[string]string{endpoint: "198.51.100.1:51821", internalIP: "10.1.0.9/24", key: someKey, persistentKeepalive: "-1", allowedLocationIPs: "10.9.0.7/24"})
	declared := read(map[string]string{forceEndpoint: "vpn.example.com:51821", endpoint: "198.51.100.1:51820", forceInternalIP: "10.1.0.9/24", key: someKey, leader: "", location: "eu", persistentKeepalive: "25"})
	none := read(map[string]string{forceInternalIP: "-", internalIP: "10.1.0.9/24"})
	for _, tt := range []struct {
		name      string
		got, want any
	}{
		{"endpoint found", found.Status.Endpoints[0].String(), "198.51.100.1:51821"},
		{"no endpoint declared", found.Spec.Endpoint.String(), ""},
		{"internal IP found", found.Status.InternalIPs[0].String(), "10.1.0.9"},
		{"keepalive that no device takes", found.Spec.PersistentKeepalive.String(), "0s"},
		{"extra prefixes without host bits", found.Spec.ExtraPrefixes[0].String(), "10.9.0.0/24"},
		{"endpoint declared", declared.Spec.Endpoint.String(), "vpn.example.com:51821"},
		{"and none found", len(declared.Status.Endpoints), 0},
		{"port", declared.Status.ListenPort, uint16(51821)},
		{"internal IP declared", declared.Spec.InternalIPs[0].String(), "10.1.0.9"},
		{"location and wish", []any{declared.Spec.Location, declared.Spec.Leader}, []any{"eu", true}},
		{"keepalive", declared.Spec.PersistentKeepalive.String(), "25s"},
		{"no internal IP", []any{none.Spec.NoInternalIP, len(none.Status.InternalIPs)}, []any{true, 0}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The planner makes a mesh of every cluster, in the location topology, for every node that has a key.
func TestEveryClusterIsPlanned(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	planned := 0
	for i, c := range clusters(t) {
		nodes, peers := c.members(r)
		s := mesh.Snapshot{Settings: mesh.Settings{Topology: mesh.ByLocation}}
		for _, n := range nodes {
			s.Nodes = append(s.Nodes, n.Fact(mesh.Identity{Name: n.Name}))
		}
		for _, p := range peers {
			s.Peers = append(s.Peers, p.Fact(mesh.Identity{Name: p.Name}))
		}
		s, _ = mesh.Rehearse(s)
		for _, n := range nodes {
			plan, problems := mesh.MakePlan(s, n.Name, mesh.Options{})
			if plan.Self == "" {
				t.Errorf("cluster %d: no plan for %s: %v", i, n.Name, problems)
			}
			if _, err := plan.Device.Normalized(); err != nil {
				t.Errorf("cluster %d: the device of %s: %v", i, n.Name, err)
			}
			planned++
		}
	}
	if planned != 473 {
		t.Errorf("%d nodes planned", planned)
	}
}
