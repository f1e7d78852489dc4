package device

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// plainSocket moves one datagram per system call through the net package. It is what systems
// other than Linux have, and Linux sandboxes without recvmmsg.
type plainSocket struct {
	conn *net.UDPConn
	line *bindLine
	zone string // of the last link-local source, and its index
	zidx uint32
}

// listenFunc opens a socket, and calls setUp before it has its port.
type listenFunc func(network string, at netip.AddrPort, setUp func(network, address string, c syscall.RawConn) error) (*net.UDPConn, error)

func listenUDP(network string, at netip.AddrPort, setUp func(network, address string, c syscall.RawConn) error) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: setUp}
	c, err := lc.ListenPacket(context.Background(), network, at.String())
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) { // it says again what the caller says
			err = op.Err
		}
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func newPlainSocket(l *bindLine, at netip.AddrPort) (*plainSocket, error) {
	c, err := l.bind.kernel.listenUDP(l.network, at, nil)
	if err != nil {
		return nil, err
	}
	// a smaller buffer than asked for is no reason not to run
	_ = c.SetReadBuffer(l.bind.opt.ReceiveBuffer)
	_ = c.SetWriteBuffer(l.bind.opt.SendBuffer)
	return &plainSocket{conn: c, line: l}, nil
}

func (s *plainSocket) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	n, from, err := s.conn.ReadFromUDPAddrPort(packets[0])
	if err != nil {
		return 0, err
	}
	key := s.key(from)
	sizes[0], eps[0] = n, s.line.sources.lookup(&key)
	return 1, nil
}

func (s *plainSocket) key(from netip.AddrPort) sourceKey {
	key := sourceKey{remote: from.Addr().As16(), port: uint32(from.Port())}
	if zone := from.Addr().Zone(); zone != "" {
		if zone != s.zone {
			s.zone = zone
			s.zidx, _ = zoneIndex(zone) // an interface that went away is 0
		}
		key.scope = s.zidx
	}
	return key
}

// send goes on after a datagram that is too large for the path: the next may not be.
func (s *plainSocket) send(bufs [][]byte, ep *udpEndpoint) (first error) {
	for _, buf := range bufs {
		_, err := s.conn.WriteToUDPAddrPort(buf, ep.dst)
		if err == nil {
			continue
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, syscall.EMSGSIZE) {
			break
		}
	}
	return first
}

func (s *plainSocket) setMark(mark uint32) error { return markSocket(s.conn, mark) }
func (s *plainSocket) setGSO(bool)               {}
func (s *plainSocket) setGRO(bool)               {}
func (s *plainSocket) interrupt()                { interruptUDP(s.conn) }
func (s *plainSocket) rearm()                    { rearmUDP(s.conn) }
func (s *plainSocket) close() error              { return s.conn.Close() }
func (s *plainSocket) addr() netip.AddrPort      { return localAddr(s.conn) }
func (s *plainSocket) describe(*SocketStats)     {}

// The errors of these two are those of a closed socket, which receive returns as well.

func interruptUDP(c *net.UDPConn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }
func rearmUDP(c *net.UDPConn)     { _ = c.SetReadDeadline(time.Time{}) }

func localAddr(c *net.UDPConn) netip.AddrPort {
	at := c.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
