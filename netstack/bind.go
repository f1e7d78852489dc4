package netstack

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// newSocket makes an endpoint that is not bound or connected yet.
func (s *Stack) newSocket(transport tcpip.TransportProtocolNumber, network tcpip.NetworkProtocolNumber) (*socket, error) {
	var wq waiter.Queue
	ep, err := s.ip.NewEndpoint(transport, network, &wq)
	if err != nil {
		return nil, errno(err)
	}
	return newSocket(s, ep, &wq), nil
}

// bind makes an endpoint on local. Without an address, or with "::", it serves both
// families unless the network's name ends in 4 or 6.
func (s *Stack) bind(transport tcpip.TransportProtocolNumber, network string, local netip.AddrPort) (*socket, error) {
	addr := local.Addr()
	only4, only6 := strings.HasSuffix(network, "4"), strings.HasSuffix(network, "6")
	if addr.Is4() && only6 || addr.Is6() && only4 {
		return nil, &net.AddrError{Err: network + " needs an address of the other family", Addr: addr.String()}
	}
	if err := s.checkLocal(addr); err != nil {
		return nil, err
	}
	proto := ipv6.ProtocolNumber
	if addr.Is4() || only4 {
		proto = ipv4.ProtocolNumber
	}
	c, err := s.newSocket(transport, proto)
	if err != nil {
		return nil, err
	}
	c.ep.SocketOptions().SetV6Only(only6)
	if transport == tcp.ProtocolNumber {
		// As everywhere: a new listener need not wait for the last connections of the old.
		c.ep.SocketOptions().SetReuseAddress(true)
	}
	if err := c.ep.Bind(fullAddress(local)); err != nil {
		c.close()
		return nil, errno(err)
	}
	return c, nil
}

// checkLocal names a local address that we do not have.
func (s *Stack) checkLocal(addr netip.Addr) error {
	if addr.IsValid() && !addr.IsUnspecified() && !s.addresses.contains(addr) {
		return fmt.Errorf("%s is not an address of this tunnel: %w", addr, syscall.EADDRNOTAVAIL)
	}
	return nil
}

// checkRemote names what no dial can reach, before gVisor says something less clear.
func (s *Stack) checkRemote(remote netip.AddrPort) error {
	addr := remote.Addr()
	switch {
	case !addr.IsValid() || addr.IsUnspecified():
		return &net.AddrError{Err: "no address to connect to", Addr: remote.String()}
	case remote.Port() == 0:
		return &net.AddrError{Err: "no port to connect to", Addr: remote.String()}
	}
	return s.checkReach(addr)
}

// checkReach says no to an address of a family of which the tunnel has none.
func (s *Stack) checkReach(addr netip.Addr) error {
	if !s.addresses.first(addr.Is4()).IsValid() {
		return fmt.Errorf("%s cannot be reached, the tunnel has no %s address: %w", addr, family(addr), syscall.ENETUNREACH)
	}
	return nil
}

// withAddr is bound with the address asked for where the endpoint reports none.
func withAddr(bound, asked netip.AddrPort) netip.AddrPort {
	addr := bound.Addr()
	if !addr.IsValid() {
		addr = asked.Addr()
	}
	if !addr.IsValid() {
		addr = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(addr, bound.Port())
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
