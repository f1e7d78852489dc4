package proxy

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// sourceConn reads and writes with IP_PKTINFO or IPV6_PKTINFO (RFC 3542), which say and set
// the local address of each datagram. It has one reader; writers may be many.
type sourceConn struct {
	c   *net.UDPConn
	oob []byte // of the reader
}

// newSourceConn returns nil when the socket is not one of the system's, or has an address of
// its own.
func newSourceConn(c net.PacketConn) *sourceConn {
	udp, ok := c.(*net.UDPConn)
	if !ok || !addrPortOf(udp.LocalAddr()).Addr().IsUnspecified() {
		return nil
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil
	}
	var err4, err6 error
	if err := raw.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}); err != nil || err4 != nil && err6 != nil {
		return nil
	}
	return &sourceConn{c: udp, oob: make([]byte, 128)}
}

func (s *sourceConn) read(b []byte) (int, netip.AddrPort, netip.Addr, error) {
	n, oobn, _, from, err := s.c.ReadMsgUDPAddrPort(b, s.oob)
	if err != nil {
		return n, from, netip.Addr{}, err
	}
	local := destinationOf(s.oob[:oobn])
	if local.IsValid() && local.IsUnspecified() { // it came before the option was set
		local = netip.Addr{}
	}
	return n, from, local, nil
}

// destinationOf finds the address that a datagram was sent to, as the socket can send from
// it. A dual-stack socket gets both messages for an IPv4 datagram, and they agree.
func destinationOf(oob []byte) (local netip.Addr) {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return local
		}
		oob = rest
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			local = netip.AddrFrom4([4]byte(data[4:8])) // ipi_spec_dst, not a broadcast address
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			if a := netip.AddrFrom16([16]byte(data[:16])).Unmap(); a.Is6() {
				local = a
			}
		}
	}
	return local
}

func (s *sourceConn) write(b []byte, to netip.AddrPort, local netip.Addr) error {
	_, _, err := s.c.WriteMsgUDPAddrPort(b, pktinfo(local), to)
	return err
}

// pktinfo is the control message that sets the local address and leaves the interface to
// the routes.
func pktinfo(local netip.Addr) []byte {
	if local.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: local.As16()})
}
