package netstack

import (
	"context"
	"net"
	"net/netip"
)

// The names in this file are those of wireguard-go's tun/netstack, for programs that come
// from there. They differ in what they return: the connections of this package.

// DialContextTCPAddrPort connects to addr, after waiting for a session with its peer.
func (n *Net) DialContextTCPAddrPort(ctx context.Context, addr netip.AddrPort) (*TCPConn, error) {
	return n.dialTCP(ctx, addr)
}

// DialContextTCP is DialContextTCPAddrPort with another form of address.
func (n *Net) DialContextTCP(ctx context.Context, addr *net.TCPAddr) (*TCPConn, error) {
	return n.dialTCP(ctx, fromTCPAddr(addr))
}

// DialTCPAddrPort is DialContextTCPAddrPort without a context.
func (n *Net) DialTCPAddrPort(addr netip.AddrPort) (*TCPConn, error) {
	return n.dialTCP(context.Background(), addr)
}

// DialTCP is DialTCPAddrPort with another form of address.
func (n *Net) DialTCP(addr *net.TCPAddr) (*TCPConn, error) {
	return n.DialTCPAddrPort(fromTCPAddr(addr))
}

// ListenTCPAddrPort listens on addr; without an address, on all of the tunnel's.
func (n *Net) ListenTCPAddrPort(addr netip.AddrPort) (*TCPListener, error) {
	return n.stack.ListenTCP(addr)
}

// ListenTCP is ListenTCPAddrPort with another form of address.
func (n *Net) ListenTCP(addr *net.TCPAddr) (*TCPListener, error) {
	return n.stack.ListenTCP(fromTCPAddr(addr))
}

// DialUDPAddrPort returns a socket that is connected to raddr, or one that is not when raddr
// is the zero value. A zero laddr lets the stack choose.
func (n *Net) DialUDPAddrPort(laddr, raddr netip.AddrPort) (*UDPConn, error) {
	if raddr == (netip.AddrPort{}) {
		return n.stack.ListenUDP(laddr)
	}
	raddr = unmap(raddr)
	if raddr.IsValid() {
		if err := n.known(raddr.Addr()); err != nil {
			return nil, opError("dial", "udp", udpAddr(laddr), udpAddr(raddr), err)
		}
	}
	return n.stack.DialUDP(laddr, raddr)
}

// DialUDP is DialUDPAddrPort with another form of address.
func (n *Net) DialUDP(laddr, raddr *net.UDPAddr) (*UDPConn, error) {
	return n.DialUDPAddrPort(fromUDPAddr(laddr), fromUDPAddr(raddr))
}

// ListenUDPAddrPort returns a socket on laddr; without an address, on all of the tunnel's.
func (n *Net) ListenUDPAddrPort(laddr netip.AddrPort) (*UDPConn, error) {
	return n.stack.ListenUDP(laddr)
}

// ListenUDP is ListenUDPAddrPort with another form of address.
func (n *Net) ListenUDP(laddr *net.UDPAddr) (*UDPConn, error) {
	return n.stack.ListenUDP(fromUDPAddr(laddr))
}

// DialPingAddr returns a socket for ICMP echo to raddr, or one for WriteTo when raddr is the
// zero value.
func (n *Net) DialPingAddr(laddr, raddr netip.Addr) (*PingConn, error) {
	if raddr.IsValid() {
		if err := n.known(raddr); err != nil {
			return nil, opError("dial", "ping", pingAddr(laddr), pingAddr(raddr), err)
		}
	}
	return n.stack.DialPing(laddr, raddr)
}

// DialPing is DialPingAddr with another form of address.
func (n *Net) DialPing(laddr, raddr *PingAddr) (*PingConn, error) {
	return n.DialPingAddr(fromPingAddr(laddr), fromPingAddr(raddr))
}

// ListenPingAddr returns a socket for ICMP echo from laddr, for WriteTo.
func (n *Net) ListenPingAddr(laddr netip.Addr) (*PingConn, error) {
	return n.stack.DialPing(laddr, netip.Addr{})
}

// ListenPing is ListenPingAddr with another form of address.
func (n *Net) ListenPing(laddr *PingAddr) (*PingConn, error) {
	return n.ListenPingAddr(fromPingAddr(laddr))
}

// LookupHost is LookupContextHost without a context.
func (n *Net) LookupHost(host string) ([]string, error) {
	return n.LookupContextHost(context.Background(), host)
}

// LookupContextHost asks the tunnel's DNS servers for the addresses of host.
func (n *Net) LookupContextHost(ctx context.Context, host string) ([]string, error) {
	return n.resolver.LookupHost(ctx, host)
}

// Listen listens for TCP connections from the tunnel, as net.Listen does. The network is
// tcp, tcp4 or tcp6; the host is a tunnel address, or nothing for all of them.
func (n *Net) Listen(network, address string) (net.Listener, error) {
	addr, err := listenAddress("tcp", network, address)
	if err != nil {
		return nil, opError("listen", network, nil, nil, err)
	}
	l, err := n.stack.listenTCP(network, addr)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// ListenPacket returns an unconnected UDP socket in the tunnel, as net.ListenPacket does.
// The network is udp, udp4 or udp6.
func (n *Net) ListenPacket(network, address string) (net.PacketConn, error) {
	addr, err := listenAddress("udp", network, address)
	if err != nil {
		return nil, opError("listen", network, nil, nil, err)
	}
	c, err := n.stack.listenUDP(network, addr)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func listenAddress(want, network, address string) (netip.AddrPort, error) {
	kind, _, err := parseNetwork(network)
	if err != nil || kind != want {
		return netip.AddrPort{}, net.UnknownNetworkError(network)
	}
	host, port, err := splitAddress(context.Background(), kind, address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		return netip.AddrPortFrom(netip.Addr{}, port), nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, &net.AddrError{Err: "not an IP address: use one of the tunnel's, or none for all", Addr: host}
	}
	return netip.AddrPortFrom(addr, port), nil
}

func fromTCPAddr(a *net.TCPAddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	return a.AddrPort()
}

func fromUDPAddr(a *net.UDPAddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	return a.AddrPort()
}

func fromPingAddr(a *PingAddr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	return a.addr
}
