package netstack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
)

// PingAddr is the address of a PingConn.
type PingAddr struct{ addr netip.Addr }

// PingAddrFromAddr returns the PingAddr of addr.
func PingAddrFromAddr(addr netip.Addr) *PingAddr { return &PingAddr{addr.Unmap()} }

// Addr is the plain address.
func (a PingAddr) Addr() netip.Addr { return a.addr }

// String is the plain address as text.
func (a PingAddr) String() string { return a.addr.String() }

// Network is "ping4" or "ping6", "ping" without an address.
func (a PingAddr) Network() string {
	switch {
	case a.addr.Is4():
		return "ping4"
	case a.addr.Is6():
		return "ping6"
	}
	return "ping"
}

// PingConn sends ICMP echo requests and receives the replies to them. What is written and
// read are whole ICMP messages: type, code, checksum, identifier, sequence number, payload
// (RFC 792, RFC 4443). Identifier and checksum are set by the stack; the identifier tells
// the replies to this socket from those to others.
type PingConn struct {
	s             *socket
	local, remote PingAddr
}

var (
	_ net.Conn       = (*PingConn)(nil)
	_ net.PacketConn = (*PingConn)(nil)
)

// DialPing returns a socket for echo to remote. Without local the stack chooses. Without
// remote the family is local's, and only WriteTo works.
func (s *Stack) DialPing(local, remote netip.Addr) (*PingConn, error) {
	local, remote = local.Unmap(), remote.Unmap()
	c, err := s.dialPing(local, remote)
	if err != nil {
		return nil, opError("dial", "ping", pingAddr(local), pingAddr(remote), err)
	}
	return c, nil
}

func (s *Stack) dialPing(local, remote netip.Addr) (c *PingConn, err error) {
	either := remote
	if !either.IsValid() {
		either = local
	}
	if !either.IsValid() {
		return nil, &net.AddrError{Err: "no address to ping"}
	}
	if remote.IsValid() {
		if err := s.checkReach(remote); err != nil {
			return nil, err
		}
	}
	transport := icmp.ProtocolNumber6
	if either.Is4() {
		transport = icmp.ProtocolNumber4
	}
	err = s.whileOpen(func() error {
		sock, err := s.newSocket(transport, networkProtocol(either))
		if err != nil {
			return err
		}
		c = &PingConn{s: sock, local: PingAddr{local}, remote: PingAddr{remote}}
		return c.open()
	})
	return c, err
}

func (c *PingConn) open() error {
	if c.remote.addr.IsValid() {
		local := netip.AddrPort{}
		if c.local.addr.IsValid() {
			local = netip.AddrPortFrom(c.local.addr, 0)
		}
		if err := c.s.startConnect(local, netip.AddrPortFrom(c.remote.addr, 0)); err != nil {
			return err
		}
		c.local = PingAddr{c.s.localAddr().Addr()}
		return nil
	}
	if err := c.s.ep.Bind(fullAddress(netip.AddrPortFrom(c.local.addr, 0))); err != nil {
		c.s.close()
		return errno(err)
	}
	return nil
}

// Read reads one echo reply.
func (c *PingConn) Read(b []byte) (int, error) {
	n, _, err := c.ReadFrom(b)
	return n, err
}

// ReadFrom reads one echo reply and says who sent it, as a *PingAddr.
func (c *PingConn) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	err = c.s.receive(func() tcpip.Error {
		w := tcpip.SliceWriter(b)
		res, err := c.s.ep.Read(&w, tcpip.ReadOptions{NeedRemoteAddr: true})
		n, from = res.Count, &PingAddr{netipAddr(res.RemoteAddr.Addr)}
		return abortedUDP(err)
	})
	if err != nil {
		return 0, nil, c.opError("read", err)
	}
	return n, from, nil
}

// Write sends an echo request to the address that the socket was dialled to.
func (c *PingConn) Write(b []byte) (int, error) { return c.writeTo(b, nil) }

// WriteTo sends an echo request to addr, a *PingAddr or *net.IPAddr.
func (c *PingConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	var to netip.Addr
	switch a := addr.(type) {
	case *PingAddr:
		to = a.addr
	case *net.IPAddr:
		to, _ = netip.AddrFromSlice(a.IP)
		to = to.Unmap()
	}
	if !to.IsValid() || c.local.addr.IsValid() && to.Is4() != c.local.addr.Is4() {
		return 0, c.opError("write", &net.AddrError{Err: "not an address of this socket's family", Addr: addrText(addr)})
	}
	full := fullAddress(netip.AddrPortFrom(to, 0))
	return c.writeTo(b, &full)
}

func (c *PingConn) writeTo(b []byte, to *tcpip.FullAddress) (int, error) {
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

// Close ends the socket and what waits on it. A second Close reports net.ErrClosed.
func (c *PingConn) Close() error {
	if !c.s.close() {
		return c.opError("close", net.ErrClosed)
	}
	return nil
}

// LocalAddr is a *PingAddr.
func (c *PingConn) LocalAddr() net.Addr { return &c.local }

// RemoteAddr is a *PingAddr, without an address when none was dialled.
func (c *PingConn) RemoteAddr() net.Addr { return &c.remote }

// SetDeadline ends reads and writes, those that wait now too, at t with
// os.ErrDeadlineExceeded. The zero time is never.
func (c *PingConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline is SetDeadline for reads.
func (c *PingConn) SetReadDeadline(t time.Time) error {
	c.s.read.deadline.set(t)
	return nil
}

// SetWriteDeadline is SetDeadline for writes.
func (c *PingConn) SetWriteDeadline(t time.Time) error {
	c.s.write.deadline.set(t)
	return nil
}

func (c *PingConn) opError(op string, err error) error {
	return opError(op, "ping", &c.local, pingAddr(c.remote.addr), err)
}

// pingAddr is nil rather than an address without one.
func pingAddr(addr netip.Addr) net.Addr {
	if !addr.IsValid() {
		return nil
	}
	return &PingAddr{addr}
}

// pingInterval is the time between echo requests while none is answered.
const pingInterval = time.Second

// Ping sends an ICMP echo request to addr, and one more every second, until one is answered
// or ctx ends. It returns the round-trip time of the one that was answered.
func (s *Stack) Ping(ctx context.Context, addr netip.Addr) (time.Duration, error) {
	c, err := s.DialPing(netip.Addr{}, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })()

	request := echoRequest(addr.Unmap().Is4())
	var sent []time.Time
	for {
		binary.BigEndian.PutUint16(request[6:], uint16(len(sent)))
		sent = append(sent, time.Now())
		if _, err := c.Write(request); err != nil {
			return 0, err
		}
		seq, err := c.awaitReply(ctx, request, sent[len(sent)-1].Add(pingInterval))
		switch {
		case err == nil && seq < len(sent):
			return time.Since(sent[seq]), nil
		case ctx.Err() != nil:
			return 0, c.opError("ping", contextError(ctx, "no echo reply"))
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
	}
}

// awaitReply waits at most until the given moment for a reply to request, and returns its
// sequence number.
func (c *PingConn) awaitReply(ctx context.Context, request []byte, until time.Time) (int, error) {
	c.SetReadDeadline(until)
	if ctx.Err() != nil { // its end came before the deadline was moved
		return 0, os.ErrDeadlineExceeded
	}
	reply := make([]byte, len(request)+1)
	for {
		n, err := c.Read(reply)
		if err != nil {
			return 0, err
		}
		if bytes.Equal(reply[header.ICMPv4MinimumSize:n], request[header.ICMPv4MinimumSize:]) {
			return int(binary.BigEndian.Uint16(reply[6:])), nil
		}
	}
}

// pingPayload is how many random bytes a request carries: as much as ping(8) sends.
const pingPayload = 56

func echoRequest(is4 bool) []byte {
	m := make([]byte, header.ICMPv4MinimumSize+pingPayload)
	if m[0] = byte(header.ICMPv6EchoRequest); is4 {
		m[0] = byte(header.ICMPv4Echo)
	}
	rand.Read(m[header.ICMPv4MinimumSize:])
	return m
}
