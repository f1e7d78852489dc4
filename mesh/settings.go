package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Or is the settings with what they leave open taken from others.
func (s Settings) Or(others Settings) Settings {
	s.Topology = cmp.Or(s.Topology, others.Topology)
	s.Inside = cmp.Or(s.Inside, others.Inside)
	for _, list := range []struct{ own, others *[]netip.Prefix }{
		{&s.Subnets, &others.Subnets}, {&s.ClusterCIDRs, &others.ClusterCIDRs}, {&s.ServiceCIDRs, &others.ServiceCIDRs},
	} {
		if len(*list.own) == 0 {
			*list.own = *list.others
		}
	}
	s.IgnoreInternalIPs = s.IgnoreInternalIPs || others.IgnoreInternalIPs
	s.AllowDefaultRoute = s.AllowDefaultRoute || others.AllowDefaultRoute
	return s
}

// overruled names what of an agent's own settings the sources say otherwise: theirs are the same
// on all nodes, and go before.
func (s Settings) overruled(own Settings, node string) (problems []Problem) {
	differ := func(field, theirs, ours string) {
		problems = append(problems, Problem{
			Subject{Kind: KindMesh}, field, theirs, Overruled,
			fmt.Sprintf("goes before the %s that the agent of node %s was given", ours, node),
			"start that agent without, or change the settings of the mesh",
		})
	}
	if s.Topology != "" && own.Topology != "" && s.Topology != own.Topology {
		differ("spec.topology", string(s.Topology), string(own.Topology))
	}
	if s.Inside != "" && own.Inside != "" && s.Inside != own.Inside {
		differ("spec.inside", string(s.Inside), string(own.Inside))
	}
	for _, list := range []struct {
		field        string
		theirs, ours []netip.Prefix
	}{
		{"spec.subnets", s.Subnets, own.Subnets},
		{"spec.clusterCIDRs", s.ClusterCIDRs, own.ClusterCIDRs},
		{"spec.serviceCIDRs", s.ServiceCIDRs, own.ServiceCIDRs},
	} {
		theirs, ours := sorted(slices.Clone(list.theirs)), sorted(slices.Clone(list.ours))
		if len(theirs) > 0 && len(ours) > 0 && !slices.Equal(theirs, ours) {
			differ(list.field, join(theirs), join(ours))
		}
	}
	return problems
}
