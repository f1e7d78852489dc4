package mesh

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettingsOfTheMeshGoBeforeThoseOfOneAgentByName(t *testing.T) {
	subnets := func(list ...string) (out []netip.Prefix) {
		for _, text := range list {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	of := Settings{Topology: ByLocation, Inside: VXLAN, Subnets: subnets("10.4.0.0/16", "fd04::/64")}
	for _, tt := range []struct {
		name string
		own  Settings
		want []string
	}{
		{"none given", Settings{}, nil},
		{"the same, in another order", Settings{Topology: ByLocation, Inside: VXLAN, Subnets: subnets("fd04::/64", "10.4.0.0/16")}, nil},
		{"what the mesh leaves open", Settings{ClusterCIDRs: subnets("10.42.0.0/16")}, nil},
		{"all others", Settings{Topology: Cross, Inside: Encrypted, Subnets: subnets("10.5.0.0/16")}, []string{
			`mesh: spec.topology "location" goes before the cross that the agent of node a was given: start that agent without, or change the settings of the mesh`,
			`mesh: spec.inside "vxlan" goes before the encrypted that the agent of node a was given: start that agent without, or change the settings of the mesh`,
			`mesh: spec.subnets "10.4.0.0/16, fd04::/64" goes before the 10.5.0.0/16 that the agent of node a was given: start that agent without, or change the settings of the mesh`,
		}},
	} {
		var got []string
		for _, p := range of.overruled(tt.own, "a") {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}
