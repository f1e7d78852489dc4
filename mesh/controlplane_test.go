package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stillwire/stillwire/device"
)

// The address of the API server goes into a tunnel only while that is known to carry packets; pods,
// which do not ask it for the mesh, go on by the tunnel.
func TestNoTunnelTakesTheControlPlaneAwayUnproven(t *testing.T) {
	s := cities(Settings{Topology: ByLocation})
	claimLeads(t, &s)
	before, _ := MakePlan(s, "a", Options{})
	i := slices.IndexFunc(before.Host.Routes, func(r Route) bool {
		return r.Via == ViaTunnel && slices.ContainsFunc(s.Nodes, func(n Node) bool {
			return slices.Contains(n.Status.InternalIPs, r.Dst.Addr()) || slices.Contains(n.Spec.InternalIPs, r.Dst.Addr())
		})
	})
	if i < 0 {
		t.Fatalf("no internal IP is behind the tunnel:\n%s", before)
	}
	api := before.Host.Routes[i]
	has := func(list []Route) bool {
		return slices.ContainsFunc(list, func(r Route) bool { return r.Dst == api.Dst && r.Via == ViaTunnel })
	}
	s.Local.ControlPlane = []netip.Addr{api.Dst.Addr()}
	plan, problems := MakePlan(s, "a", Options{})
	if has(plan.Host.Routes) || !has(plan.Host.Forwarded) || len(problems) > 0 {
		t.Errorf("unproven: the route is there: %v, that of pods: %v, problems %v", has(plan.Host.Routes), has(plan.Host.Forwarded), problems)
	}
	s.Local.Paths = make(map[device.PublicKey]Path)
	for _, n := range s.Nodes {
		s.Local.Paths[n.Status.PublicKey] = Path{Verdict: Up}
	}
	if plan, _ = MakePlan(s, "a", Options{}); !has(plan.Host.Routes) {
		t.Error("proven: the route is not there")
	}
	// A network that holds the address is no way at all.
	s.Peers = append(s.Peers, Peer{Identity: Identity{Name: "office"}, PublicKey: key("office"), AllowedIPs: []netip.Prefix{prefix("172.30.0.0/16")}})
	s.Local.ControlPlane = []netip.Addr{netip.MustParseAddr("172.30.1.1")}
	plan, problems = MakePlan(s, "a", Options{})
	if slices.ContainsFunc(plan.Host.Routes, func(r Route) bool { return r.Member == "office" }) ||
		!slices.ContainsFunc(problems, func(p Problem) bool { return p.Subject.Name == "office" && p.Reason == ForbiddenPrefix }) {
		t.Errorf("problems are %v, and the plan\n%s", problems, plan)
	}
}
