package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/stillwire/stillwire/device"
)

// DefaultSubnet is where mesh addresses are taken from when nothing else is said.
var defaultSubnet = netip.MustParsePrefix("10.4.0.0/16")

// checkSettings fills in what the settings leave open, and leaves out what cannot be.
func (m *mesh) checkSettings() {
	s := &m.Settings
	s.Topology = Topology(m.known("spec.topology", string(s.Topology), string(Full), string(ByLocation), string(Cross)))
	s.Inside = Encapsulation(m.known("spec.inside", string(s.Inside), string(Native), string(VXLAN), string(IPIP), string(Geneve), string(Encrypted)))
	s.Subnets = m.checkPrefixes("spec.subnets", s.Subnets)
	if len(s.Subnets) == 0 {
		s.Subnets = []netip.Prefix{defaultSubnet}
	}
	s.ClusterCIDRs = m.checkPrefixes("spec.clusterCIDRs", s.ClusterCIDRs)
	s.ServiceCIDRs = m.checkPrefixes("spec.serviceCIDRs", s.ServiceCIDRs)
}

// known returns the value if it is one of the choices, and else the first of these.
func (m *mesh) known(field, value string, choices ...string) string {
	if value == "" {
		return choices[0]
	}
	for _, c := range choices {
		if value == c {
			return value
		}
	}
	m.report(Problem{Subject{Kind: KindMesh}, field, value, Invalid, "is none of the choices, " + choices[0] + " is used", fmt.Sprintf("choose one of %q", choices)})
	return choices[0]
}

func (m *mesh) checkPrefixes(field string, list []netip.Prefix) (good []netip.Prefix) {
	for _, p := range list {
		if !p.IsValid() {
			m.report(Problem{Subject{Kind: KindMesh}, field, p.String(), Invalid, "is not a prefix, it is ignored", "write it as 10.4.0.0/16"})
			continue
		}
		good = append(good, p.Masked())
	}
	return good
}

// newMember takes over from a node what is in range.
func (m *mesh) newMember(n *Node) *member {
	s := n.subject()
	n.Spec.PersistentKeepalive = m.checkKeepalive(s, n.Spec.PersistentKeepalive)
	if mtu := n.Spec.MTU; mtu != 0 && (mtu < 1280 || mtu > 65535) {
		m.report(Problem{s, "spec.mtu", fmt.Sprint(mtu), Invalid, "is out of range, the MTU is found from the path", "give 1280 to 65535, or nothing"})
		n.Spec.MTU = 0
	}
	if n.Status.Leads > lastTerm {
		m.report(Problem{s, "status.leads", fmt.Sprint(n.Status.Leads), Invalid, "is no term that an agent writes, it counts as none", "see who writes the node's status"})
	}
	declared := m.checkEndpoint(s, n.Spec.Endpoint)
	return &member{
		Node:     n,
		key:      n.Status.PublicKey,
		port:     cmp.Or(n.Spec.ListenPort, declared.Port, n.Status.ListenPort, DefaultPort),
		declared: declared,
		wish:     n.Spec.Leader,
	}
}

func (m *mesh) newOutside(p *Peer) *outside {
	s := p.subject()
	p.PersistentKeepalive = m.checkKeepalive(s, p.PersistentKeepalive)
	return &outside{Peer: p, endpoint: m.checkEndpoint(s, p.Endpoint)}
}

func (m *mesh) checkKeepalive(s Subject, k time.Duration) time.Duration {
	if k >= 0 && k <= 65535*time.Second && k%time.Second == 0 {
		return k
	}
	m.report(Problem{s, "spec.persistentKeepalive", k.String(), Invalid, "is out of range, there is none", "give whole seconds from 0 to 65535"})
	return 0
}

// checkEndpoint returns none for what is no address of one other machine.
func (m *mesh) checkEndpoint(s Subject, e device.Endpoint) device.Endpoint {
	if e.IsZero() {
		return e
	}
	if _, err := device.ParseEndpoint(e.String()); err != nil {
		m.report(Problem{s, "spec.endpoint", e.String(), Invalid, err.Error() + ", it is ignored", "write it as host:port or [IPv6]:port"})
		return device.Endpoint{}
	}
	if a, ok := e.AddrPort(); ok && !unicast(a.Addr()) {
		m.report(Problem{s, "spec.endpoint", e.String(), ForbiddenEndpoint, "is not the address of one other machine, it is ignored", "give an address or name at which other machines reach it"})
		return device.Endpoint{}
	}
	return e
}

// unicast reports whether the address may be that of another machine.
func unicast(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
