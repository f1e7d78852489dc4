package netstack

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	minMTU  = 576                   // what every IPv4 host must take (RFC 791)
	minMTU6 = header.IPv6MinimumMTU // what every IPv6 link must carry (RFC 8200)
)

// addressSnapshot is the published list of tunnel addresses; who reads it takes no lock.
type addressSnapshot struct {
	p atomic.Pointer[[]netip.Prefix]
}

func (a *addressSnapshot) prefixes() []netip.Prefix {
	if p := a.p.Load(); p != nil {
		return *p
	}
	return nil
}

// first is the first address of the family of like, invalid when there is none.
func (a *addressSnapshot) first(is4 bool) netip.Addr {
	for _, p := range a.prefixes() {
		if p.Addr().Is4() == is4 {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

func (a *addressSnapshot) contains(addr netip.Addr) bool {
	return slices.ContainsFunc(a.prefixes(), func(p netip.Prefix) bool { return p.Addr() == addr })
}

// Addresses are the tunnel addresses in the order given. The slice is a copy.
func (s *Stack) Addresses() []netip.Prefix { return slices.Clone(s.addresses.prefixes()) }

// SetAddresses makes the tunnel addresses those given, in that order. New ones are added
// before old ones are removed. Connections on addresses that stay go on untouched; those on
// an address that goes are reset, on both ends, as they could never carry a byte again.
func (s *Stack) SetAddresses(addresses []netip.Prefix) error {
	s.addressMu.Lock()
	defer s.addressMu.Unlock()
	if err := checkAddresses(addresses, int(s.link.MTU())); err != nil {
		return err
	}
	return s.whileOpen(func() error { return s.setAddresses(addresses) })
}

func (s *Stack) setAddresses(want []netip.Prefix) error {
	want = cleanAddresses(want)
	have := s.addresses.prefixes()
	for _, p := range want {
		if !s.addresses.contains(p.Addr()) {
			if err := s.addAddress(p); err != nil {
				return err
			}
		}
	}
	s.addresses.p.Store(&want)
	for _, p := range have {
		if !s.addresses.contains(p.Addr()) {
			if err := s.removeAddress(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// addAddress gives gVisor the bare address: with a prefix length it would treat the first
// and last address of the prefix as broadcasts, which a tunnel does not have.
func (s *Stack) addAddress(p netip.Prefix) error {
	err := s.ip.AddProtocolAddress(nicID, protocolAddress(p.Addr()), stack.AddressProperties{})
	if _, present := err.(*tcpip.ErrDuplicateAddress); err != nil && !present {
		return fmt.Errorf("add address %s: %s", p, err)
	}
	s.log.Debug().Str("stack", s.name).Stringer("address", p).Msg("address added")
	return nil
}

func (s *Stack) removeAddress(p netip.Prefix) error {
	s.resetConnections(p.Addr())
	err := s.ip.RemoveAddress(nicID, tcpipAddr(p.Addr()))
	if _, absent := err.(*tcpip.ErrBadLocalAddress); err != nil && !absent {
		return fmt.Errorf("remove address %s: %s", p, err)
	}
	s.log.Debug().Str("stack", s.name).Stringer("address", p).Msg("address removed")
	return nil
}

// resetConnections ends what is connected from addr, with a reset to the far side.
func (s *Stack) resetConnections(addr netip.Addr) {
	local := tcpipAddr(addr)
	for _, endpoint := range s.ip.RegisteredEndpoints() {
		e, ok := endpoint.(tcpip.Endpoint)
		if !ok {
			continue
		}
		info, ok := e.Info().(*stack.TransportEndpointInfo)
		// What listens stays: it serves again when the address comes back.
		if ok && info.ID.LocalAddress == local && info.ID.RemoteAddress != (tcpip.Address{}) {
			endpoint.Abort()
		}
	}
}

// checkAddresses says what is wrong with addresses, or with mtu for these addresses.
func checkAddresses(addresses []netip.Prefix, mtu int) error {
	least := minMTU
	for _, p := range addresses {
		addr := p.Addr()
		switch {
		case !p.IsValid():
			return fmt.Errorf("address %s is not valid: write it like 10.0.0.2/24 or fd00::2/64", p)
		case addr.IsUnspecified(), addr.IsMulticast(), addr.IsLoopback(), addr.Zone() != "":
			return fmt.Errorf("address %s cannot be a tunnel address: use a unicast address of the tunnel", p)
		case addr.Is6() && !addr.Is4In6():
			least = minMTU6
		}
	}
	if mtu < least {
		return fmt.Errorf("MTU %d is too small: these addresses need at least %d", mtu, least)
	}
	if mtu > maxMTU {
		return fmt.Errorf("MTU %d is too large: WireGuard carries at most %d", mtu, maxMTU)
	}
	return nil
}

// cleanAddresses unmaps IPv4 in IPv6 and drops repetitions, keeping order and host bits.
func cleanAddresses(in []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(in))
	for _, p := range in {
		if p.Addr().Is4In6() {
			p = netip.PrefixFrom(p.Addr().Unmap(), max(p.Bits()-96, 0))
		}
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Addr() == p.Addr() }) {
			out = append(out, p)
		}
	}
	return out
}

func protocolAddress(addr netip.Addr) tcpip.ProtocolAddress {
	return tcpip.ProtocolAddress{Protocol: networkProtocol(addr), AddressWithPrefix: tcpipAddr(addr).WithPrefix()}
}

func networkProtocol(addr netip.Addr) tcpip.NetworkProtocolNumber {
	if addr.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// tcpipAddr is gVisor's form of addr; an invalid or unspecified one is its empty address.
func tcpipAddr(addr netip.Addr) tcpip.Address {
	switch addr = addr.Unmap(); {
	case !addr.IsValid() || addr.IsUnspecified():
		return tcpip.Address{}
	case addr.Is4():
		return tcpip.AddrFrom4(addr.As4())
	}
	return tcpip.AddrFrom16(addr.As16())
}

// netipAddr is the inverse of tcpipAddr.
func netipAddr(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr.Unmap()
}

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: tcpipAddr(a.Addr()), Port: a.Port()}
}
