package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// udpSocket is an unconnected UDP socket by netip addresses, IPv4 always in its short form.
// Where the system can, it also tells to which local address a datagram came and sends from
// that one: a socket on all addresses would answer from another otherwise, and the client
// would not know the answer.
type udpSocket struct {
	net.PacketConn
	fast   addrPortConn // PacketConn itself, or nil
	source *sourceConn  // nil: the socket has one address, or the system cannot tell
}

// addrPortConn is what *net.UDPConn and netstack's UDP sockets have for use without
// allocation.
type addrPortConn interface {
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
}

func newUDPSocket(c net.PacketConn) *udpSocket {
	s := &udpSocket{PacketConn: c, source: newSourceConn(c)}
	s.fast, _ = c.(addrPortConn)
	return s
}

// read receives one datagram into b. local is valid only when source is.
func (s *udpSocket) read(b []byte) (n int, from netip.AddrPort, local netip.Addr, err error) {
	switch {
	case s.source != nil:
		n, from, local, err = s.source.read(b)
	case s.fast != nil:
		n, from, err = s.fast.ReadFromUDPAddrPort(b)
	default:
		var addr net.Addr
		n, addr, err = s.ReadFrom(b)
		from = addrPortOf(addr)
	}
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), local, err
}

// write sends one datagram, from local when that is valid.
func (s *udpSocket) write(b []byte, to netip.AddrPort, local netip.Addr) error {
	var err error
	switch {
	case s.source != nil && local.IsValid():
		err = s.source.write(b, to, local)
	case s.fast != nil:
		_, err = s.fast.WriteToUDPAddrPort(b, to)
	default:
		_, err = s.WriteTo(b, net.UDPAddrFromAddrPort(to))
	}
	return err
}

// passing reports whether a read error of a UDP socket is news of an earlier datagram or a
// lack that passes, so that reading goes on.
func passing(err error) bool {
	return isErrno(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.EMSGSIZE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EINTR, syscall.EPERM, syscall.EACCES, syscall.EPROTO)
}

// sendReason is why a datagram could not be sent.
func sendReason(err error) Reason {
	if isErrno(err, syscall.EMSGSIZE) {
		return ReasonTooLarge
	}
	if r := DialReason(err); r != ReasonTarget && r != ReasonCanceled {
		return r
	}
	return ReasonUnsendable
}

var errNoAddress = errors.New("has no IP address")

// localAddr is the address of this side of a client's connection: where its datagrams are
// expected. Over a unix socket the client is on this machine.
func localAddr(c net.Conn) (netip.Addr, error) {
	switch a := c.LocalAddr().(type) {
	case *net.UnixAddr:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap(), nil
	default:
		return netip.Addr{}, fmt.Errorf("listener %v %w", a, errNoAddress)
	}
}
