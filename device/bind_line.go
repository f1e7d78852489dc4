package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// udpSocket is a UDP socket of one family. It has two implementations: fastSocket, in batches
// on Linux, and plainSocket, one by one everywhere.
type udpSocket interface {
	// receive waits for datagrams. It is called by one goroutine at a time.
	receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error)
	// send sends all of bufs; what it cannot send is told in the first error.
	send(bufs [][]byte, ep *udpEndpoint) error
	setMark(mark uint32) error
	setGSO(on bool)
	setGRO(on bool)
	// interrupt makes the present or the next receive return os.ErrDeadlineExceeded, once.
	interrupt()
	rearm()
	close() error
	addr() netip.AddrPort
	describe(*SocketStats)
}

// bindLine is one family of an open Bind. It stays while its socket may be replaced:
//
//	receive ── data ──> wireguard-go
//	   │
//	   ├─ soft error (an ICMP message of some peer) ──> receive
//	   ├─ dead, or rebind ──> reopen, again and again ──> receive
//	   └─ closed ──> net.ErrClosed
type bindLine struct {
	bind    *Bind
	network string     // "udp4" or "udp6"
	addr    netip.Addr // where to listen
	port    uint16
	routes  *routeWatch
	sources *sourceCache // owned by the receiving goroutine
	done    chan struct{}
	stale   atomic.Bool // the socket is to be opened again
	count   lineCounters

	// owned by the receiving goroutine
	soft   int       // soft errors since the last datagram
	opened time.Time // when the socket was opened again last

	mu     sync.Mutex // of replacing the socket and of closed
	closed bool
	socket atomic.Value // holder
}

// holder lets an atomic.Value hold sockets of both types.
type holder struct{ udpSocket }

func (b *Bind) newLine(network string, addr netip.Addr, port uint16) (*bindLine, error) {
	if !addr.IsValid() {
		return nil, errNoFamily
	}
	l := &bindLine{bind: b, network: network, addr: addr, port: port, done: make(chan struct{})}
	l.sources = newSourceCache(sourceCacheSize, func() { b.newSource() })
	s, err := l.listen()
	if err != nil {
		return nil, err
	}
	l.port = s.addr().Port()
	l.socket.Store(holder{s})
	return l, nil
}

// listen opens a socket with all that the Bind wants of it.
func (l *bindLine) listen() (udpSocket, error) {
	s, err := l.bind.kernel.listen(l, netip.AddrPortFrom(l.addr, l.port))
	if err != nil {
		return nil, fmt.Errorf("listen on %s port %d: %w", l.network, l.port, err)
	}
	if mark := l.bind.mark.Load(); mark != 0 {
		if err := setMark(s, mark); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func setMark(s udpSocket, mark uint32) error {
	if err := s.setMark(mark); err != nil {
		return fmt.Errorf("set fwmark %#x on udp socket %s: %w", mark, s.addr(), err)
	}
	return nil
}

func (l *bindLine) current() udpSocket { return l.socket.Load().(holder).udpSocket }

// receiveIPv4 and receiveIPv6 differ in their names only, which wireguard-go puts in its log.
func (l *bindLine) receiveIPv4(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	return l.receive(packets, sizes, eps)
}

func (l *bindLine) receiveIPv6(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	return l.receive(packets, sizes, eps)
}

// receive is the one place that receives.
func (l *bindLine) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	for {
		s := l.current()
		n, err := s.receive(packets, sizes, eps)
		if n > 0 {
			l.soft = 0
			l.count.received(sizes[:n])
			return n, nil
		}
		if err := l.recover(s, err); err != nil {
			return 0, err
		}
	}
}

// recover decides what a receive error means. It returns an error only when it is over.
func (l *bindLine) recover(s udpSocket, err error) error {
	if l.isClosed() {
		return net.ErrClosed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.rearm() // before stale is read: rebind sets it before it interrupts
		err = nil
	}
	if l.stale.Swap(false) {
		l.sources.forget()
		return l.reopen(errRebind)
	}
	if err == nil {
		return nil
	}
	if l.soft++; isSoft(err) && l.soft <= softErrors {
		return nil
	}
	return l.reopen(err)
}

// softErrors is how many soft errors in a row are taken for the messages of others.
const softErrors = 1000

var errRebind = errors.New("asked to")

// isSoft reports whether a receive error is about a datagram that was sent, or one that came
// and did not fit, and not about the socket.
func isSoft(err error) bool {
	for _, soft := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN,
		syscall.EMSGSIZE, syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EACCES, syscall.ECONNRESET, syscall.EINTR,
		syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, soft) {
			return true
		}
	}
	return false
}

const (
	reopenFirst = 20 * time.Millisecond
	reopenMost  = 5 * time.Second
)

// reopen replaces the socket by one on the same port, and tries until it can or the line is
// closed. A socket that died again soon waits too, so that a broken system costs no CPU.
func (l *bindLine) reopen(cause error) error {
	log := l.bind.opt.Log.With().Str("network", l.network).Uint16("port", l.port).Logger()
	if cause != errRebind {
		log.Warn().AnErr("cause", cause).Msg("udp socket died, opening it again")
	}
	wait := reopenFirst - time.Since(l.opened)
	for logged := false; ; {
		if !l.pause(wait) {
			return net.ErrClosed
		}
		err := l.replace()
		if err == nil {
			break
		}
		if errors.Is(err, net.ErrClosed) {
			return net.ErrClosed
		}
		if !logged {
			log.Warn().Err(err).Msg("cannot open the udp socket again, will go on trying")
			logged = true
		}
		wait = min(max(2*wait, reopenFirst), reopenMost)
	}
	l.opened = time.Now()
	l.count.reopened.Add(1)
	log.Info().Msg("udp socket is open again")
	return nil
}

// pause waits and reports whether the line is still open.
func (l *bindLine) pause(d time.Duration) bool {
	if d <= 0 {
		return !l.isClosed()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.done:
		return false
	case <-timer.C:
		return true
	}
}

// replace closes the socket, which frees the port, and opens another. The line's mutex is
// held: once close returns, no socket of this line will have the port.
func (l *bindLine) replace() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.current().close()
	s, err := l.listen()
	if err != nil {
		return err
	}
	l.socket.Store(holder{s})
	return nil
}

func (l *bindLine) send(bufs [][]byte, ep *udpEndpoint) error {
	if !l.routes.confirm(ep) {
		l.count.sourcesCleared.Add(1)
	}
	err := l.current().send(bufs, ep)
	if err == nil {
		return nil
	}
	l.count.sendErrors.Add(1)
	if isDead(err) && !l.isClosed() {
		l.rebind()
	}
	return fmt.Errorf("send to %s: %w", ep.dst, err)
}

// isDead reports whether a send error says that the socket is of no use any more.
func isDead(err error) bool {
	return errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.ENOTSOCK) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ENOTCONN)
}

func (l *bindLine) isClosed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// The methods below may be called on nil, for a family that is not there.

func (l *bindLine) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	close(l.done)
	if err := l.current().close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close %s port %d: %w", l.network, l.port, err)
	}
	return nil
}

// watch tells the line who knows of changed routes, before anything is sent or received.
func (l *bindLine) watch(w *routeWatch) {
	if l != nil {
		l.routes, l.sources.routes = w, w
	}
}

func (l *bindLine) rebind() {
	if l == nil {
		return
	}
	l.stale.Store(true)
	l.with(udpSocket.interrupt)
}

func (l *bindLine) setMark(mark uint32) (err error) {
	l.with(func(s udpSocket) { err = setMark(s, mark) })
	return err
}

// with calls f for a socket that is not replaced meanwhile, so that no setting gets lost: a
// later one reads it from the Bind.
func (l *bindLine) with(f func(udpSocket)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.current())
}
