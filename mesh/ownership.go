package mesh

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// prefixes are the addresses that one member has, once conflicts are settled. Each list is
// masked, sorted and without repetition.
type prefixes struct {
	pods     []netip.Prefix
	mesh     []netip.Addr // of the member's mesh addresses
	internal []netip.Addr // at most one of each family
	extra    []netip.Prefix
}

// all returns every prefix, sorted.
func (p prefixes) all() []netip.Prefix {
	list := slices.Concat(p.pods, single(p.mesh), single(p.internal), p.extra)
	return sorted(list)
}

// inner returns all but internal IPs.
func (p prefixes) inner() []netip.Prefix {
	return sorted(slices.Concat(p.pods, single(p.mesh), p.extra))
}

func single(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		out[i] = netip.PrefixFrom(a, a.BitLen())
	}
	return out
}

// sorted masks, sorts and compacts in place. IPv4 comes first.
func sorted(list []netip.Prefix) []netip.Prefix {
	for i, p := range list {
		list[i] = p.Masked()
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// ownership is who has which addresses. Pods go before mesh addresses, these before internal
// IPs, and those before what administrators add; within one kind the older object goes before.
type ownership struct {
	pods   bart.Table[Subject]
	outer  bart.Table[Subject]      // the addresses at which nodes are reached from outside
	single map[netip.Addr]holding   // mesh addresses, internal IPs and node endpoints
	extra  map[netip.Prefix]Subject // as added, longest match decides among them
}

// holding is what one address is used for.
type holding struct {
	by  Subject
	use string // "mesh address", "internal IP", "endpoint"
}

// shareOut settles every claim to an address. Members are visited from the oldest on.
func (m *mesh) shareOut() {
	m.owned = ownership{single: make(map[netip.Addr]holding), extra: make(map[netip.Prefix]Subject)}
	nodes := slices.Clone(m.members)
	slices.SortFunc(nodes, func(a, b *member) int { return a.compare(b.Identity) })
	peers := slices.Clone(m.outside)
	slices.SortFunc(peers, func(a, b *outside) int { return a.compare(b.Identity) })

	for _, n := range nodes {
		n.prefixes.pods = m.sharePods(n)
	}
	m.shareMeshAddresses(nodes, peers)
	for _, n := range nodes {
		n.prefixes.internal = m.shareInternalIPs(n)
	}
	for _, n := range nodes {
		m.reserveEndpoints(n)
	}
	for _, n := range nodes {
		n.prefixes.extra = m.shareExtra(n.subject(), "spec.extraPrefixes", n.Spec.ExtraPrefixes)
	}
	for _, p := range peers {
		p.prefixes.extra = m.shareExtra(p.subject(), "spec.allowedIPs", p.AllowedIPs)
	}
}

func (m *mesh) sharePods(n *member) (got []netip.Prefix) {
	for _, p := range n.PodCIDRs {
		s, field := n.subject(), "podCIDRs"
		if p.Bits() == 0 {
			m.report(Problem{s, field, p.String(), ForbiddenPrefix, "cannot be the pods of one node, it is ignored", "give each node pod addresses of its own"})
			continue
		}
		if !m.permitted(s, field, p) {
			continue
		}
		p = p.Masked()
		if other, taken := m.owned.podsOverlapping(p, s); taken {
			m.report(Problem{s, field, p.String(), OverlappingPrefix, "overlaps the pods of " + other.String() + ", which keeps them", "give each node pod addresses of its own"})
			continue
		}
		m.owned.pods.Insert(p, s)
		got = append(got, p)
	}
	return sorted(got)
}

// podsOverlapping finds another's pods that share an address with p.
func (o *ownership) podsOverlapping(p netip.Prefix, s Subject) (Subject, bool) {
	for _, other := range o.pods.Supernets(p) {
		if !other.same(s) {
			return other, true
		}
	}
	for _, other := range o.pods.Subnets(p) {
		if !other.same(s) {
			return other, true
		}
	}
	return Subject{}, false
}

func (s Subject) same(other Subject) bool { return s.Kind == other.Kind && s.Name == other.Name }

// shareInternalIPs takes the first address of each family that is fit and free.
func (m *mesh) shareInternalIPs(n *member) (got []netip.Addr) {
	if n.Spec.NoInternalIP || m.Settings.IgnoreInternalIPs {
		return nil
	}
	field, candidates := "spec.internalIPs", n.Spec.InternalIPs
	found := len(candidates) == 0
	if found {
		field, candidates = "status.internalIPs", n.foundInternalIPs()
	}
	var have [2]bool // by family
	for _, a := range candidates {
		a = a.Unmap().WithZone("")
		if a.IsValid() && (have[family(a)] || found && m.isInner(a)) {
			continue
		}
		if m.takeInternalIP(n, field, a) {
			have[family(a)] = true
			got = append(got, a)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	return got
}

// foundInternalIPs are those that the node found, first those that the cluster knows it by.
func (n *member) foundInternalIPs() []netip.Addr {
	list := slices.Clone(n.Status.InternalIPs)
	slices.SortStableFunc(list, func(a, b netip.Addr) int {
		return -falseFirst(slices.Contains(n.NodeIPs, a), slices.Contains(n.NodeIPs, b))
	})
	return list
}

// isInner reports whether an address is one inside the mesh, such as that of a node on the link of
// its pods: no way from outside leads there.
func (m *mesh) isInner(a netip.Addr) bool {
	if _, ok := m.owned.pods.Lookup(a); ok {
		return true
	}
	return slices.ContainsFunc(slices.Concat(m.Settings.Subnets, m.Settings.ClusterCIDRs), func(p netip.Prefix) bool { return p.Contains(a) })
}

func (m *mesh) takeInternalIP(n *member, field string, a netip.Addr) bool {
	s := n.subject()
	if !unicast(a) {
		m.report(Problem{s, field, a.String(), Invalid, "cannot be the address of a machine, it is ignored", "give the address by which its neighbours reach it, or none"})
		return false
	}
	if other, taken := m.owned.pods.Lookup(a); taken && !other.same(s) {
		m.report(Problem{s, field, a.String(), OverlappingPrefix, "is among the pods of " + other.String() + ", it is ignored", "give the address by which its neighbours reach it"})
		return false
	}
	if other, taken := m.owned.single[a]; taken && !other.by.same(s) {
		m.report(Problem{s, field, a.String(), DuplicateInternalIP, "is the " + other.use + " of " + other.by.String() + ", which keeps it; this node counts as if it had none", "give each node its own, or say that this one has none"})
		return false
	}
	m.owned.single[a] = holding{s, "internal IP"}
	return true
}

// reserveEndpoints keeps the outer addresses of nodes from being drawn into a tunnel by others.
func (m *mesh) reserveEndpoints(n *member) {
	reserve := func(a netip.Addr) {
		a = a.Unmap().WithZone("")
		if a.IsValid() {
			m.owned.outer.Insert(netip.PrefixFrom(a, a.BitLen()), n.subject())
		}
		if _, taken := m.owned.single[a]; !taken && a.IsValid() {
			m.owned.single[a] = holding{n.subject(), "endpoint"}
		}
	}
	if a, ok := n.declared.AddrPort(); ok {
		reserve(a.Addr())
	}
	for _, a := range n.Status.Endpoints {
		reserve(a.Addr())
	}
}

// shareExtra settles what administrators give a node or a peer beside its own. Prefixes that
// hold others are fine: the longest match has an address, as anywhere in routing.
func (m *mesh) shareExtra(s Subject, field string, list []netip.Prefix) (got []netip.Prefix) {
	for _, p := range list {
		if !m.permitted(s, field, p) {
			continue
		}
		p = p.Masked()
		if other, use, taken := m.owned.taken(p, s); taken {
			m.report(Problem{s, field, p.String(), OverlappingPrefix, "is " + use + " of " + other.String() + ", which keeps it", "remove it from one of the two"})
			continue
		}
		m.owned.extra[p] = s
		got = append(got, p)
	}
	return sorted(got)
}

// taken reports who has all of p by a claim that goes before.
func (o *ownership) taken(p netip.Prefix, s Subject) (by Subject, use string, taken bool) {
	for _, other := range o.pods.Supernets(p) {
		if !other.same(s) {
			return other, "within the pods", true
		}
	}
	if p.IsSingleIP() {
		if other, ok := o.single[p.Addr()]; ok && !other.by.same(s) {
			return other.by, "the " + other.use, true
		}
	}
	if p.Bits() > 0 {
		for a, other := range o.outer.Subnets(p) {
			if !other.same(s) {
				return other, "around " + a.Addr().String() + ", an outer address", true
			}
		}
	}
	if other, ok := o.extra[p]; ok && !other.same(s) {
		return other, "a prefix", true
	}
	return Subject{}, "", false
}

// permitted reports whether a tunnel may carry the prefix at all.
func (m *mesh) permitted(s Subject, field string, p netip.Prefix) bool {
	if !p.IsValid() {
		m.report(Problem{s, field, p.String(), Invalid, "is not a prefix, it is ignored", "write it as 10.2.0.0/24"})
		return false
	}
	reason := m.forbidden(p.Masked())
	if reason != "" {
		m.report(Problem{s, field, p.String(), ForbiddenPrefix, reason + ", it is ignored", "remove it"})
	}
	return reason == ""
}

// shortest is the length of the largest prefixes that are anybody's: 10.0.0.0/8, fc00::/7.
const shortest = 7

func (m *mesh) forbidden(p netip.Prefix) string {
	a := p.Addr()
	switch {
	case a.Is4In6():
		return "is an IPv4 prefix written as IPv6"
	case p.Bits() == 0 && !m.Settings.AllowDefaultRoute:
		return "takes all traffic, which the settings do not allow"
	case p.Bits() == 0:
		return ""
	case p.Bits() < shortest && !m.Settings.AllowDefaultRoute:
		return "takes so much of all traffic as the settings do not allow"
	case a.IsLoopback(), a.IsUnspecified() && p.IsSingleIP():
		return "holds addresses of the machine itself"
	case a.IsLinkLocalUnicast():
		return "holds addresses of a link"
	case a.IsMulticast():
		return "holds addresses of groups"
	}
	for _, c := range m.Settings.ServiceCIDRs {
		if c.Bits() <= p.Bits() && c.Contains(a) {
			return "lies within the services " + c.String()
		}
	}
	return ""
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
