package netstack

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

// UDPConn is a UDP socket in the tunnel, connected or not. It has the methods of
// *net.UDPConn that mean something here. Datagrams of up to 65507 bytes (IPv4) go out in
// fragments where they are larger than the MTU.
//
// A datagram longer than the reader's buffer is cut, as with any UDP socket. Several
// goroutines may read and write.
type UDPConn struct {
	s      *socket
	local  netip.AddrPort
	remote netip.AddrPort // invalid: not connected
}

var (
	_ net.Conn       = (*UDPConn)(nil)
	_ net.PacketConn = (*UDPConn)(nil)
)

// DialUDP returns a socket that is connected to remote: it sends there and takes from
// there alone. A zero local lets the stack choose. Nothing is sent.
func (s *Stack) DialUDP(local, remote netip.AddrPort) (*UDPConn, error) {
	c, err := s.dialUDP("udp", unmap(local), unmap(remote))
	if err != nil {
		return nil, opError("dial", "udp", udpAddr(local), udpAddr(remote), err)
	}
	return c, nil
}

func (s *Stack) dialUDP(network string, local, remote netip.AddrPort) (c *UDPConn, err error) {
	if err := s.checkRemote(remote); err != nil {
		return nil, err
	}
	err = s.whileOpen(func() error {
		sock, err := s.newSocket(udp.ProtocolNumber, networkProtocol(remote.Addr()))
		if err != nil {
			return err
		}
		if err := sock.startConnect(local, remote); err != nil {
			return err
		}
		c = &UDPConn{s: sock, local: sock.localAddr(), remote: remote}
		return nil
	})
	return c, err
}

// ListenUDP returns a socket that is not connected, on local as in ListenTCP.
func (s *Stack) ListenUDP(local netip.AddrPort) (*UDPConn, error) {
	return s.listenUDP("udp", local)
}

func (s *Stack) listenUDP(network string, local netip.AddrPort) (c *UDPConn, err error) {
	local = unmap(local)
	err = s.whileOpen(func() error {
		sock, err := s.bind(udp.ProtocolNumber, network, local)
		if err != nil {
			return err
		}
		c = &UDPConn{s: sock, local: withAddr(sock.localAddr(), local)}
		return nil
	})
	if err != nil {
		return nil, opError("listen", network, nil, udpAddr(local), err)
	}
	return c, nil
}

// Read reads one datagram.
func (c *UDPConn) Read(b []byte) (int, error) {
	n, _, err := c.ReadFromUDPAddrPort(b)
	return n, err
}

// ReadFrom reads one datagram and says who sent it, as a *net.UDPAddr.
func (c *UDPConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDP is ReadFrom with the concrete type.
func (c *UDPConn) ReadFromUDP(b []byte) (int, *net.UDPAddr, error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// ReadFromUDPAddrPort is ReadFrom without allocation. On a connected socket whose far side
// reports that nobody listens the error is ECONNREFUSED.
func (c *UDPConn) ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error) {
	err = c.s.receive(func() tcpip.Error {
		w := tcpip.SliceWriter(b)
		res, err := c.s.ep.Read(&w, tcpip.ReadOptions{NeedRemoteAddr: true})
		if _, cut := err.(*tcpip.ErrBadBuffer); cut {
			err = nil // a buffer without room for a single byte
		}
		n, from = res.Count, addrPort(res.RemoteAddr)
		return abortedUDP(err)
	})
	if err != nil {
		return 0, netip.AddrPort{}, c.opError("read", err)
	}
	return n, from, nil
}

// abortedUDP names what gVisor calls "closed for receive" although nobody closed it: the
// socket's address was taken away.
func abortedUDP(err tcpip.Error) tcpip.Error {
	if _, ended := err.(*tcpip.ErrClosedForReceive); ended {
		return &tcpip.ErrConnectionAborted{}
	}
	return err
}

// Write sends b as one datagram to the address that the socket is connected to.
func (c *UDPConn) Write(b []byte) (int, error) { return c.writeTo(b, nil) }

// WriteTo sends b as one datagram to addr, a *net.UDPAddr.
func (c *UDPConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok || to == nil {
		return 0, c.opError("write", &net.AddrError{Err: "not a UDP address", Addr: addrText(addr)})
	}
	return c.WriteToUDPAddrPort(b, to.AddrPort())
}

// WriteToUDP is WriteTo with the concrete type.
func (c *UDPConn) WriteToUDP(b []byte, addr *net.UDPAddr) (int, error) { return c.WriteTo(b, addr) }

// WriteToUDPAddrPort is WriteTo without allocation of an address.
func (c *UDPConn) WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	addr = unmap(addr)
	if err := c.s.stack.checkRemote(addr); err != nil {
		return 0, c.opError("write", err)
	}
	to := fullAddress(addr)
	return c.writeTo(b, &to)
}

func (c *UDPConn) writeTo(b []byte, to *tcpip.FullAddress) (int, error) {
	var payload bytes.Reader
	err := c.s.send(func() tcpip.Error {
		payload.Reset(b)
		_, err := c.s.ep.Write(&payload, tcpip.WriteOptions{To: to})
		return err
	})
	if err != nil {
		return 0, c.opError("write", err)
	}
	return len(b), nil
}

// Close ends the socket and the reads and writes that wait. A second Close reports
// net.ErrClosed.
func (c *UDPConn) Close() error {
	if !c.s.close() {
		return c.opError("close", net.ErrClosed)
	}
	return nil
}

// LocalAddr is a *net.UDPAddr.
func (c *UDPConn) LocalAddr() net.Addr { return udpAddr(c.local) }

// RemoteAddr is a *net.UDPAddr, or nil when the socket is not connected.
func (c *UDPConn) RemoteAddr() net.Addr { return udpAddr(c.remote) }

// SetDeadline ends reads and writes, those that wait now too, at t with
// os.ErrDeadlineExceeded. The zero time is never.
func (c *UDPConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline is SetDeadline for reads.
func (c *UDPConn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.s.read, t) }

// SetWriteDeadline is SetDeadline for writes.
func (c *UDPConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.s.write, t) }

func (c *UDPConn) setDeadline(h *half, t time.Time) error {
	if c.s.closed.Load() {
		return c.opError("set", net.ErrClosed)
	}
	h.deadline.set(t)
	return nil
}

// SetReadBuffer sets how many bytes of datagrams wait for a reader; it begins at 2 MiB.
func (c *UDPConn) SetReadBuffer(bytes int) error {
	c.s.ep.SocketOptions().SetReceiveBufferSize(int64(bytes), true)
	return nil
}

// SetWriteBuffer sets how many bytes may be on their way out before Write waits.
func (c *UDPConn) SetWriteBuffer(bytes int) error {
	c.s.ep.SocketOptions().SetSendBufferSize(int64(bytes), true)
	return nil
}

func (c *UDPConn) opError(op string, err error) error {
	return opError(op, "udp", udpAddr(c.local), udpAddr(c.remote), err)
}

func addrText(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}
