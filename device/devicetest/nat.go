package devicetest

import (
	"fmt"
	"net/netip"
	"time"
)

// NATKind says how a NAT maps and filters, in the words of RFC 3489 (RFC 4787 in brackets).
type NATKind int

// The kinds.
const (
	FullCone           NATKind = iota // one mapping per inner port; anybody may use it (endpoint-independent)
	RestrictedCone                    // one mapping; addresses that were sent to (address-dependent filter)
	PortRestrictedCone                // one mapping; addresses and ports that were sent to
	Symmetric                         // a mapping per destination, for that destination alone
)

// NATOptions of a NAT.
type NATOptions struct {
	Kind NATKind
	// Timeout ends a mapping, and the leave to answer, when nothing went out for so long.
	// 0 is never.
	Timeout time.Duration
}

// NAT hides hosts behind one public address per family.
type NAT struct {
	net     *Network
	opt     NATOptions
	outside *realm
	inside  realm

	// under net.mu
	public []netip.Addr
	out    map[flow]*mapping
	in     map[uint16]*mapping // by public port
	next   uint16
}

// flow names a mapping: dst is set in symmetric NATs only.
type flow struct{ inner, dst netip.AddrPort }

type mapping struct {
	flow
	port uint16
	used time.Time
	sent map[netip.AddrPort]time.Time // destinations that may answer
}

// NAT adds a NAT with this public address. It panics when the address is taken.
func (n *Network) NAT(public netip.Addr, o NATOptions) *NAT { return n.newNAT(&n.root, public, o) }

// NAT adds a NAT behind this one.
func (t *NAT) NAT(public netip.Addr, o NATOptions) *NAT { return t.net.newNAT(&t.inside, public, o) }

func (n *Network) newNAT(outside *realm, public netip.Addr, o NATOptions) *NAT {
	t := &NAT{net: n, opt: o, outside: outside, public: []netip.Addr{public.Unmap()}, next: firstFreePort}
	t.inside = realm{gateway: t, at: make(map[netip.Addr]station)}
	t.out, t.in = make(map[flow]*mapping), make(map[uint16]*mapping)
	n.mu.Lock()
	defer n.mu.Unlock()
	outside.claim(t, t.public)
	return t
}

// Host adds a host behind the NAT. Hosts behind different NATs may have the same address.
func (t *NAT) Host(addrs ...string) *Host { return t.net.newHost(&t.inside, addrs) }

// Rebind forgets all mappings, as a NAT that restarts: flows that go on get new ports, and
// what comes to the old ones is lost.
func (t *NAT) Rebind() {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	clear(t.out)
	clear(t.in)
}

// SetPublic gives the NAT other public addresses, one per family, and keeps its mappings.
func (t *NAT) SetPublic(addrs ...netip.Addr) {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	t.outside.release(t.public)
	t.outside.claim(t, addrs)
	t.public = addrs
}

// Mappings returns how many mappings are alive.
func (t *NAT) Mappings() int {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	alive, now := 0, time.Now()
	for _, m := range t.in {
		if !t.expired(m.used, now) {
			alive++
		}
	}
	return alive
}

func (t *NAT) name() string { return fmt.Sprint("NAT ", t.public) }

// mapOut returns the public source of a packet, and lets dst answer.
func (t *NAT) mapOut(src, dst netip.AddrPort, now time.Time) netip.AddrPort {
	key := flow{inner: src}
	if t.opt.Kind == Symmetric {
		key.dst = dst
	}
	m := t.out[key]
	if m == nil || t.expired(m.used, now) {
		m = t.newMapping(key)
	}
	m.used, m.sent[dst] = now, now
	return netip.AddrPortFrom(t.publicFor(dst.Addr()), m.port)
}

func (t *NAT) newMapping(key flow) *mapping {
	if old := t.out[key]; old != nil {
		delete(t.in, old.port)
	}
	m := &mapping{flow: key, port: t.freePort(), sent: make(map[netip.AddrPort]time.Time)}
	t.out[key], t.in[m.port] = m, m
	return m
}

// freePort goes on from the last one given, so that a port is not soon given again and late
// answers do not reach somebody else.
func (t *NAT) freePort() uint16 {
	for range 1<<16 - firstFreePort {
		port := t.next
		if t.next++; t.next == 0 {
			t.next = firstFreePort
		}
		if t.in[port] == nil {
			return port
		}
	}
	panic(fmt.Sprintf("devicetest: %s has no port left", t.name()))
}

func (t *NAT) publicFor(dst netip.Addr) netip.Addr {
	for _, a := range t.public {
		if a.Is4() == dst.Is4() {
			return a
		}
	}
	return netip.Addr{} // nobody can answer
}

// mapIn returns the inner destination of a packet from src to a public port, when the NAT
// lets it in.
func (t *NAT) mapIn(src netip.AddrPort, port uint16, now time.Time) (netip.AddrPort, bool) {
	m := t.in[port]
	if m == nil || t.expired(m.used, now) || !t.admits(m, src, now) {
		return netip.AddrPort{}, false
	}
	return m.inner, true
}

func (t *NAT) admits(m *mapping, src netip.AddrPort, now time.Time) bool {
	switch t.opt.Kind {
	case FullCone:
		return true
	case RestrictedCone:
		for dst, at := range m.sent {
			if dst.Addr() == src.Addr() && !t.expired(at, now) {
				return true
			}
		}
		return false
	default:
		at, ok := m.sent[src]
		return ok && !t.expired(at, now)
	}
}

func (t *NAT) expired(used, now time.Time) bool {
	return t.opt.Timeout > 0 && now.Sub(used) > t.opt.Timeout
}
