package netstack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	// listenBacklog is how many connections wait for Accept: Linux's default.
	listenBacklog = 4096

	// keepAlive is the idle time before the first probe and the time between probes;
	// after keepAliveCount of them without an answer the connection is dead. As in Go's
	// net package.
	keepAlive      = 15 * time.Second
	keepAliveCount = 9
)

// TCPConn is a TCP connection in the tunnel. It has the methods of *net.TCPConn that mean
// something here, among them CloseWrite for half-close.
type TCPConn struct {
	s      *socket
	local  net.Addr // kept, since gVisor forgets them at the end of a connection
	remote net.Addr
}

var (
	_ net.Conn      = (*TCPConn)(nil)
	_ io.ReaderFrom = (*TCPConn)(nil)
)

// DialTCP connects to remote from local, or from an address and port of the stack's choice
// when local is the zero value. It ends with ctx. Errors are *net.OpError around a
// syscall.Errno such as ECONNREFUSED, net.ErrClosed, or ctx's error.
func (s *Stack) DialTCP(ctx context.Context, local, remote netip.AddrPort) (*TCPConn, error) {
	local, remote = unmap(local), unmap(remote)
	c, err := s.dialTCP(ctx, local, remote, func() {})
	if err != nil {
		return nil, opError("dial", "tcp", tcpAddr(local), tcpAddr(remote), err)
	}
	return c, nil
}

// dialTCP calls silent every silenceInterval that brings no answer.
func (s *Stack) dialTCP(ctx context.Context, local, remote netip.AddrPort, silent func()) (*TCPConn, error) {
	if err := s.checkRemote(remote); err != nil {
		return nil, err
	}
	var c *socket
	connect := func() error {
		var err error
		if c, err = s.newSocket(tcp.ProtocolNumber, networkProtocol(remote.Addr())); err != nil {
			return err
		}
		return c.startConnect(local, remote)
	}
	if err := s.whileOpen(connect); err != nil {
		return nil, err
	}
	if err := c.finishConnect(ctx, silent); err != nil {
		c.close()
		return nil, err
	}
	setKeepAlive(c.ep)
	return newTCPConn(c), nil
}

// startConnect binds to local, unless that is the zero value, and begins to connect. It
// closes the socket when that fails.
func (c *socket) startConnect(local, remote netip.AddrPort) error {
	if local.IsValid() || local.Port() != 0 {
		if err := c.stack.checkLocal(local.Addr()); err != nil {
			c.close()
			return err
		}
		if err := c.ep.Bind(fullAddress(local)); err != nil {
			c.close()
			return errno(err)
		}
	}
	err := c.ep.Connect(fullAddress(remote))
	if _, started := err.(*tcpip.ErrConnectStarted); err != nil && !started {
		c.close()
		return errno(err)
	}
	return nil
}

// silenceInterval is a bit more than the time after which TCP sends its SYN again, so that
// one lost packet is not called silence.
const silenceInterval = 1500 * time.Millisecond

// finishConnect waits for the handshake of TCP. The endpoint is writable when it is over,
// well or not.
func (c *socket) finishConnect(ctx context.Context, silent func()) error {
	tick := time.NewTicker(silenceInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.write.ready:
			return c.explain(c.ep.LastError())
		case <-tick.C:
			silent()
		case <-ctx.Done():
			return contextError(ctx, "no answer: the TCP handshake was not finished in time")
		case <-c.stack.done:
			return net.ErrClosed
		}
	}
}

func newTCPConn(c *socket) *TCPConn {
	return &TCPConn{s: c, local: tcpAddr(c.localAddr()), remote: tcpAddr(c.remoteAddr())}
}

func setKeepAlive(ep tcpip.Endpoint) {
	idle, interval := tcpip.KeepaliveIdleOption(keepAlive), tcpip.KeepaliveIntervalOption(keepAlive)
	ep.SetSockOpt(&idle)
	ep.SetSockOpt(&interval)
	ep.SetSockOptInt(tcpip.KeepaliveCountOption, keepAliveCount)
	ep.SocketOptions().SetKeepAlive(true)
}

// Read reads what has arrived, at least one byte, and io.EOF after the far side's end.
func (c *TCPConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n := 0
	err := c.s.receive(func() tcpip.Error {
		w := tcpip.SliceWriter(b)
		res, err := c.s.ep.Read(&w, tcpip.ReadOptions{})
		if _, end := err.(*tcpip.ErrClosedForReceive); end && !c.s.closed.Load() && !c.s.stack.isClosed() {
			return nil
		}
		n = res.Count
		return err
	})
	switch {
	case err != nil:
		return 0, c.opError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	c.s.ep.ModerateRecvBuf(n)
	return n, nil
}

// Write writes all of b into the send buffer, waiting for room.
func (c *TCPConn) Write(b []byte) (int, error) {
	n := 0
	err := c.s.send(func() tcpip.Error {
		for n < len(b) {
			m, err := c.s.ep.Write(bytes.NewReader(b[n:]), tcpip.WriteOptions{})
			if n += int(m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return n, c.opError("write", err)
	}
	return n, nil
}

// copyBuffer is what ReadFrom moves at once: enough to fill several segments per call.
const copyBuffer = 128 << 10

// ReadFrom writes what r gives until its end, for io.Copy.
func (c *TCPConn) ReadFrom(r io.Reader) (int64, error) {
	buf := make([]byte, copyBuffer)
	var total int64
	for {
		n, err := r.Read(buf)
		if n > 0 {
			m, werr := c.Write(buf[:n])
			if total += int64(m); werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Close ends the connection: what was written is still delivered, what arrives no longer
// is. A second Close reports net.ErrClosed.
func (c *TCPConn) Close() error {
	if !c.s.close() {
		return c.opError("close", net.ErrClosed)
	}
	return nil
}

// CloseWrite tells the far side that no more bytes come, after those already written.
// Reading goes on.
func (c *TCPConn) CloseWrite() error { return c.shutdown(tcpip.ShutdownWrite) }

// CloseRead says that no more bytes are wanted. Writing goes on.
func (c *TCPConn) CloseRead() error { return c.shutdown(tcpip.ShutdownRead) }

func (c *TCPConn) shutdown(how tcpip.ShutdownFlags) error {
	if c.s.closed.Load() || c.s.stack.isClosed() {
		return c.opError("close", net.ErrClosed)
	}
	if err := c.s.ep.Shutdown(how); err != nil {
		return c.opError("close", c.s.explain(err))
	}
	return nil
}

// LocalAddr is a *net.TCPAddr.
func (c *TCPConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is a *net.TCPAddr.
func (c *TCPConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline ends reads and writes, those that wait now too, at t with
// os.ErrDeadlineExceeded. The zero time is never.
func (c *TCPConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline is SetDeadline for reads.
func (c *TCPConn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.s.read, t) }

// SetWriteDeadline is SetDeadline for writes.
func (c *TCPConn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.s.write, t) }

func (c *TCPConn) setDeadline(h *half, t time.Time) error {
	if c.s.closed.Load() {
		return c.opError("set", net.ErrClosed)
	}
	h.deadline.set(t)
	return nil
}

// SetNoDelay turns Nagle's algorithm (RFC 896) off, which it is from the start, or on.
func (c *TCPConn) SetNoDelay(noDelay bool) error {
	c.s.ep.SocketOptions().SetDelayOption(!noDelay)
	return nil
}

// SetKeepAlive turns probes of an idle connection on, which they are from the start, or off.
func (c *TCPConn) SetKeepAlive(on bool) error {
	c.s.ep.SocketOptions().SetKeepAlive(on)
	return nil
}

// SetKeepAlivePeriod sets the idle time before the first probe and the time between probes.
func (c *TCPConn) SetKeepAlivePeriod(d time.Duration) error {
	idle, interval := tcpip.KeepaliveIdleOption(d), tcpip.KeepaliveIntervalOption(d)
	if err := c.s.ep.SetSockOpt(&idle); err != nil {
		return c.opError("set", errno(err))
	}
	if err := c.s.ep.SetSockOpt(&interval); err != nil {
		return c.opError("set", errno(err))
	}
	return nil
}

// SetLinger with 0 makes Close reset the connection instead of ending it in order; below
// zero, which it is from the start, Close returns at once and the stack delivers the rest.
func (c *TCPConn) SetLinger(sec int) error {
	c.s.ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: sec >= 0, Timeout: time.Duration(max(sec, 0)) * time.Second})
	return nil
}

func (c *TCPConn) opError(op string, err error) error {
	return opError(op, "tcp", c.local, c.remote, err)
}

// TCPListener accepts TCP connections from the tunnel, and from the stack itself.
type TCPListener struct {
	s     *socket
	local net.Addr
}

var _ net.Listener = (*TCPListener)(nil)

// ListenTCP listens on local. Without an address it listens on all tunnel addresses, those
// that come later too; 0.0.0.0 is all IPv4 ones. Port 0 is one of the stack's choice.
func (s *Stack) ListenTCP(local netip.AddrPort) (*TCPListener, error) {
	return s.listenTCP("tcp", local)
}

func (s *Stack) listenTCP(network string, local netip.AddrPort) (*TCPListener, error) {
	local = unmap(local)
	var l *TCPListener
	err := s.whileOpen(func() error {
		c, err := s.bind(tcp.ProtocolNumber, network, local)
		if err != nil {
			return err
		}
		if err := c.ep.Listen(listenBacklog); err != nil {
			c.close()
			return errno(err)
		}
		l = &TCPListener{s: c, local: net.TCPAddrFromAddrPort(withAddr(c.localAddr(), local))}
		return nil
	})
	if err != nil {
		return nil, opError("listen", network, nil, tcpAddr(local), err)
	}
	return l, nil
}

// Accept waits for the next connection. After Close its error is net.ErrClosed.
func (l *TCPListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptTCP is Accept with the concrete type.
func (l *TCPListener) AcceptTCP() (*TCPConn, error) {
	var conn *TCPConn
	err := l.s.receive(func() tcpip.Error {
		ep, wq, err := l.s.ep.Accept(nil)
		if err != nil {
			return err
		}
		setKeepAlive(ep)
		conn = newTCPConn(newSocket(l.s.stack, ep, wq))
		return nil
	})
	if err != nil {
		return nil, opError("accept", "tcp", nil, l.local, err)
	}
	return conn, nil
}

// SetDeadline ends Accept at t. The zero time is never.
func (l *TCPListener) SetDeadline(t time.Time) error {
	l.s.read.deadline.set(t)
	return nil
}

// Close stops listening and resets connections that nobody has accepted.
func (l *TCPListener) Close() error {
	if !l.s.close() {
		return opError("close", "tcp", nil, l.local, net.ErrClosed)
	}
	return nil
}

// Addr is a *net.TCPAddr.
func (l *TCPListener) Addr() net.Addr { return l.local }
