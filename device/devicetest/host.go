package devicetest

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// station is what has an address: a *Host or a *NAT.
type station interface{ name() string }

// realm is one address space: the network itself, or what is behind a NAT.
type realm struct {
	gateway *NAT // the way out; nil for the network itself
	at      map[netip.Addr]station
}

// outward translates a source on its way to dst until a realm is reached that knows dst, or
// that has no way out.
func (r *realm) outward(src, dst netip.AddrPort, now time.Time) (*realm, netip.AddrPort) {
	for r.at[dst.Addr()] == nil && r.gateway != nil {
		src = r.gateway.mapOut(src, dst, now)
		r = r.gateway.outside
	}
	return r, src
}

// inward finds the host that a packet to dst reaches, and the address it has there; nil when
// nobody does.
func (r *realm) inward(src, dst netip.AddrPort, now time.Time) (*Host, netip.AddrPort) {
	for {
		switch s := r.at[dst.Addr()].(type) {
		case *Host:
			return s, dst
		case *NAT:
			inner, ok := s.mapIn(src, dst.Port(), now)
			if !ok {
				return nil, dst
			}
			r, dst = &s.inside, inner
		default:
			return nil, dst
		}
	}
}

func (r *realm) claim(s station, addrs []netip.Addr) {
	for _, a := range addrs {
		if other := r.at[a]; other != nil {
			panic(fmt.Sprintf("devicetest: address %s is taken by %s", a, other.name()))
		}
		r.at[a] = s
	}
}

func (r *realm) release(addrs []netip.Addr) {
	for _, a := range addrs {
		delete(r.at, a)
	}
}

// Host is a machine with addresses and UDP ports.
type Host struct {
	net   *Network
	realm *realm

	// under net.mu
	addrs []netip.Addr
	ports map[uint16]*socket
	next  uint16 // where the search for a free port begins
}

// Host adds a host with these addresses to the network. It panics on text that is no address
// and on one that is taken: the test is wrong then.
func (n *Network) Host(addrs ...string) *Host { return n.newHost(&n.root, addrs) }

func (n *Network) newHost(r *realm, addrs []string) *Host {
	h := &Host{net: n, realm: r, addrs: parseAddrs(addrs), ports: make(map[uint16]*socket), next: firstFreePort}
	n.mu.Lock()
	defer n.mu.Unlock()
	r.claim(h, h.addrs)
	return h
}

const firstFreePort = 49152 // the dynamic ports of RFC 6335

func parseAddrs(texts []string) (addrs []netip.Addr) {
	for _, s := range texts {
		addrs = append(addrs, netip.MustParseAddr(s).Unmap())
	}
	return addrs
}

// SetAddrs gives the host other addresses, as when a laptop changes its network. Open Binds
// stay open. It panics as Network.Host does.
func (h *Host) SetAddrs(addrs ...string) {
	parsed := parseAddrs(addrs)
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.realm.release(h.addrs)
	h.realm.claim(h, parsed)
	h.addrs = parsed
}

// Addrs returns the addresses of the host.
func (h *Host) Addrs() []netip.Addr {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return slices.Clone(h.addrs)
}

func (h *Host) name() string { return fmt.Sprint("host ", h.addrs) }

func (h *Host) String() string { return fmt.Sprint(h.Addrs()) }

// source returns the address that packets to dst leave from: the wanted one while the host
// has it, else the first of the family.
func (h *Host) source(wanted, dst netip.Addr) (netip.Addr, bool) {
	if wanted.IsValid() && slices.Contains(h.addrs, wanted) {
		return wanted, true
	}
	i := slices.IndexFunc(h.addrs, func(a netip.Addr) bool { return a.Is4() == dst.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return h.addrs[i], true
}

// freePort returns a port that nobody has, 0 when there is none.
func (h *Host) freePort() uint16 {
	for range 1<<16 - firstFreePort {
		port := h.next
		if h.next++; h.next == 0 {
			h.next = firstFreePort
		}
		if h.ports[port] == nil {
			return port
		}
	}
	return 0
}
