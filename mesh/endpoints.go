package mesh

import (
	"net/netip"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// candidate is one way to reach a node from outside its tunnel.
type candidate struct {
	endpoint device.Endpoint
	ordered  bool // by an administrator
}

// endpoint chooses the first candidate that was not found to fail. While packets come from the
// node, what was chosen before stays: a better way is no reason to touch a session that lives,
// unless an administrator says so.
func (v view) endpoint(n *member) device.Endpoint {
	list := v.candidates(n, v.self)
	if len(list) == 0 {
		return device.Endpoint{}
	}
	path := v.Local.Paths[n.key]
	best := list[0]
	for _, c := range list {
		if !slices.Contains(path.Failed, c.endpoint) {
			best = c
			break
		}
	}
	keep := path.Verdict == Up && !path.Declared.IsZero() && !best.ordered
	if keep && slices.ContainsFunc(list, func(c candidate) bool { return c.endpoint == path.Declared }) {
		return path.Declared
	}
	return best.endpoint
}

// candidates are the ways to reach n from another node, best first: inside a location the
// internal IP; then what an administrator declared; then what the node found on itself; then
// where others see its packets come from; and last its internal IP, which may do where two
// locations share a private network.
func (v view) candidates(n, from *member) (list []candidate) {
	add := func(ordered bool, ends ...device.Endpoint) {
		for _, e := range ends {
			if !e.IsZero() && !slices.ContainsFunc(list, func(c candidate) bool { return c.endpoint == e }) {
				list = append(list, candidate{e, ordered})
			}
		}
	}
	if n.Spec.Location == from.Spec.Location {
		add(false, n.internalEndpoints(from)...)
	}
	add(true, n.declared)
	add(false, v.foundEndpoints(n)...)
	add(false, v.learned[n.key]...)
	add(false, n.internalEndpoints(from)...)
	return list
}

// internalEndpoints are the internal IPs with the port, of the families that the other has too.
func (n *member) internalEndpoints(from *member) (list []device.Endpoint) {
	for _, a := range n.prefixes.internal {
		if slices.ContainsFunc(from.prefixes.internal, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			list = append(list, device.EndpointFrom(netip.AddrPortFrom(a, n.port)))
		}
	}
	return list
}

func (m *mesh) foundEndpoints(n *member) (list []device.Endpoint) {
	for _, a := range n.Status.Endpoints {
		if unicast(a.Addr()) && a.Port() != 0 && !m.isInner(a.Addr()) {
			list = append(list, device.EndpointFrom(a))
		}
	}
	return list
}

// witness notes where nodes see the packets of others come from, by key: most witnesses first,
// among equals the word of the oldest.
func (m *mesh) witness() map[device.PublicKey][]device.Endpoint {
	votes := make(map[device.PublicKey][]vote)
	for _, w := range m.byAge() {
		for key, a := range w.Status.Learned {
			if key != w.key && unicast(a.Addr()) && a.Port() != 0 {
				votes[key] = count(votes[key], a)
			}
		}
	}
	learned := make(map[device.PublicKey][]device.Endpoint, len(votes))
	for key, list := range votes {
		slices.SortStableFunc(list, func(a, b vote) int { return b.count - a.count })
		for _, v := range list {
			learned[key] = append(learned[key], device.EndpointFrom(v.addr))
		}
	}
	return learned
}

// vote is how many nodes see packets come from an address.
type vote struct {
	addr  netip.AddrPort
	count int
}

func count(list []vote, a netip.AddrPort) []vote {
	for i := range list {
		if list[i].addr == a {
			list[i].count++
			return list
		}
	}
	return append(list, vote{a, 1})
}
