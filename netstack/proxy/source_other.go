//go:build !linux

package proxy

import (
	"net"
	"net/netip"
)

// sourceConn is for systems that tell the local address of a datagram; here it is left to
// the routes.
type sourceConn struct{}

func newSourceConn(net.PacketConn) *sourceConn { return nil }

func (*sourceConn) read([]byte) (int, netip.AddrPort, netip.Addr, error) {
	return 0, netip.AddrPort{}, netip.Addr{}, net.ErrClosed
}

func (*sourceConn) write([]byte, netip.AddrPort, netip.Addr) error { return net.ErrClosed }
