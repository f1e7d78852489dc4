package device

import (
	"cmp"
	"fmt"
	"net/netip"
)

// quickPeer is one [Peer] section.
type quickPeer struct {
	PeerConfig
	place
	given  map[string]entry // where the keys stand that can stand once
	claims []claim
	listed bool // an AllowedIPs line is there, if only a blank one
}

// claim is a prefix in a line AllowedIPs.
type claim struct {
	prefix netip.Prefix // masked
	entry  *entry       // shared by the claims of a line
}

func newQuickPeer(at place, name string) *quickPeer {
	return &quickPeer{
		PeerConfig: PeerConfig{Name: name, Source: at.String()},
		place:      at,
		given:      make(map[string]entry),
	}
}

// finish looks at the sections together and returns the file, or all that is wrong with it.
func (q *quickReader) finish() (*File, error) {
	for _, p := range q.peers {
		if _, ok := p.given["PublicKey"]; !ok {
			q.bad(entry{place: p.place, key: "[Peer]"}, "", "has no PublicKey: add the peer's")
		}
	}
	if len(q.errs.first) == 0 {
		q.file.Config.Peers = q.mergedPeers()
		q.checkWhole()
	}
	if len(q.errs.first) > 0 {
		return nil, q.joinedErrors()
	}
	q.file.Ignored, q.file.Warnings = q.notices(q.ignored), q.notices(q.warnings)
	return q.file, nil
}

func (q *quickReader) checkWhole() {
	if n := len(q.file.Config.Peers); n > MaxPeers {
		q.bad(entry{place: place{file: q.file.Path}}, "", fmt.Sprintf("file has %d peers, more than the %d a device can hold", n, MaxPeers))
	}
	mtu, given := q.given["MTU"]
	if !given || q.file.MTU >= minIPv6MTU {
		return
	}
	for _, a := range q.file.Addresses {
		if a.Addr().Is6() {
			q.warn(mtu, mtu.value, fmt.Sprintf("is less than the %d that IPv6 needs (RFC 8200)", minIPv6MTU))
			return
		}
	}
}

// merger plays the [Peer] sections in their order, as the kernel does when wg sets them.
type merger struct {
	*quickReader
	peers []*quickPeer
	index map[PublicKey]int // into peers
	owner map[netip.Prefix]ownership
}

type ownership struct {
	peer  int // into peers
	entry *entry
}

func (q *quickReader) mergedPeers() []PeerConfig {
	m := merger{q, nil, make(map[PublicKey]int), make(map[netip.Prefix]ownership)}
	own := q.file.Config.PrivateKey.Public()
	for _, p := range q.peers {
		if p.PublicKey == own {
			e := p.given["PublicKey"]
			q.warn(e, e.value, "is this device's own key: the peer is left out")
			continue
		}
		m.add(p)
	}
	var out []PeerConfig
	for i, p := range m.peers {
		for _, c := range p.claims {
			if m.owns(i, c.prefix) {
				p.AllowedIPs = append(p.AllowedIPs, c.prefix)
			}
		}
		out = append(out, p.PeerConfig)
	}
	return out
}

func (m *merger) add(p *quickPeer) {
	claims := p.claims
	if m.proxy && !p.listed {
		claims = m.everything(p)
	}
	i, again := m.index[p.PublicKey]
	if again {
		m.override(i, p)
	} else {
		i = len(m.peers)
		m.index[p.PublicKey] = i
		m.peers = append(m.peers, p)
	}
	m.peers[i].claims = nil
	for _, c := range claims {
		m.give(i, c)
	}
}

// everything is what wireproxy sends to a peer without AllowedIPs.
func (m *merger) everything(p *quickPeer) []claim {
	e := &entry{place: p.place, key: "AllowedIPs"}
	m.warn(*e, "", "is not given: all addresses go to this peer, as with wireproxy")
	return []claim{
		{netip.PrefixFrom(netip.IPv4Unspecified(), 0), e},
		{netip.PrefixFrom(netip.IPv6Unspecified(), 0), e},
	}
}

// override changes a peer by a second section with its key. wg asks for the AllowedIPs to be
// replaced at each section; what else the section does not give stays.
func (m *merger) override(i int, p *quickPeer) {
	first, e := m.peers[i], p.given["PublicKey"]
	m.warn(e, e.value, fmt.Sprintf("is the peer of %s too: this section changes it and replaces its AllowedIPs", first.from(p.place)))
	for _, c := range first.claims {
		if m.owns(i, c.prefix) {
			delete(m.owner, c.prefix)
		}
	}
	first.Name = cmp.Or(p.Name, first.Name)
	if _, ok := p.given["PresharedKey"]; ok {
		first.PresharedKey = p.PresharedKey
	}
	if _, ok := p.given["Endpoint"]; ok {
		first.Endpoint = p.Endpoint
	}
	if _, ok := p.given["PersistentKeepalive"]; ok {
		first.PersistentKeepalive = p.PersistentKeepalive
	}
}

// give makes peer i the owner of a prefix, and warns when it takes it from another one.
func (m *merger) give(i int, c claim) {
	if m.owns(i, c.prefix) {
		return
	}
	if before, taken := m.owner[c.prefix]; taken {
		m.warn(*c.entry, c.prefix.String(), fmt.Sprintf("is given to peer %s at %s too: the last one has it, peer %s",
			m.peers[before.peer].who(), before.entry.from(c.entry.place), m.peers[i].who()))
	}
	m.owner[c.prefix] = ownership{i, c.entry}
	m.peers[i].claims = append(m.peers[i].claims, c)
}

func (m *merger) owns(i int, p netip.Prefix) bool {
	o, taken := m.owner[p]
	return taken && o.peer == i
}

func (p *quickPeer) who() string {
	if p.Name == "" {
		return p.PublicKey.Short()
	}
	return fmt.Sprintf("%s (%s)", p.PublicKey.Short(), p.Name)
}
