package devicetest

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.zx2c4.com/wireguard/conn"
)

// Bind is a conn.Bind on a host of the network. Errors are those of a system's sockets.
type Bind struct {
	host      *Host
	newSource atomic.Pointer[func()]
	overflow  atomic.Uint64
	mark      atomic.Uint32

	mu     sync.Mutex
	socket *socket // nil: closed
}

// socket is an open port; each Open makes a new one, so that late receivers of the old one
// find it closed.
type socket struct {
	bind   *Bind
	port   uint16
	queue  chan datagram
	closed chan struct{}
	seen   sync.Map // netip.AddrPort of who spoke before
}

type datagram struct {
	src     netip.AddrPort
	dst     netip.Addr
	payload []byte
}

var _ conn.Bind = (*Bind)(nil)

// Bind returns a new closed Bind on the host.
func (h *Host) Bind() *Bind { return &Bind{host: h} }

// Open takes the port on all addresses the host has and will have; 0 takes a free one. The
// error wraps EADDRINUSE when the port is taken.
func (b *Bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.socket != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	s, err := b.listen(port)
	if err != nil {
		return nil, 0, err
	}
	b.socket = s
	return []conn.ReceiveFunc{s.receive}, s.port, nil
}

func (b *Bind) listen(port uint16) (*socket, error) {
	n := b.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		port = b.host.freePort()
	}
	if port == 0 || b.host.ports[port] != nil {
		return nil, fmt.Errorf("listen on udp port %d of %s: %w", port, b.host.name(), syscall.EADDRINUSE)
	}
	s := &socket{bind: b, port: port, queue: make(chan datagram, n.opt.QueueSize), closed: make(chan struct{})}
	b.host.ports[port] = s
	return s, nil
}

// Close frees the port. Receive functions return net.ErrClosed. It may be called twice.
func (b *Bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.socket == nil {
		return nil
	}
	n := b.host.net
	n.mu.Lock()
	delete(b.host.ports, b.socket.port)
	n.mu.Unlock()
	close(b.socket.closed)
	b.socket = nil
	return nil
}

// receive is the one place that receives: it waits for a datagram and takes what else is there.
func (s *socket) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	select { // a closed socket gives nothing, also when its queue is not empty
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	case d := <-s.queue:
		s.take(d, packets, sizes, eps, 0)
	}
	for i := 1; i < len(packets); i++ {
		select {
		case d := <-s.queue:
			s.take(d, packets, sizes, eps, i)
		default:
			return i, nil
		}
	}
	return len(packets), nil
}

func (s *socket) take(d datagram, packets [][]byte, sizes []int, eps []conn.Endpoint, i int) {
	sizes[i] = copy(packets[i], d.payload)
	ep := &Endpoint{dst: d.src}
	ep.src.Store(&d.dst)
	eps[i] = ep
	if _, known := s.seen.LoadOrStore(d.src, struct{}{}); known {
		return
	}
	if f := s.bind.newSource.Load(); f != nil {
		(*f)()
	}
}

// Send is the one place that sends. Datagrams that nobody gets are lost without an error,
// but for Options.Unreachable.
func (b *Bind) Send(bufs [][]byte, endpoint conn.Endpoint) error {
	ep, ok := endpoint.(*Endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	b.mu.Lock()
	s := b.socket
	b.mu.Unlock()
	if s == nil {
		return net.ErrClosed
	}
	src, err := b.source(ep)
	if err != nil || !src.IsValid() {
		return err
	}
	for _, buf := range bufs {
		b.host.net.send(b.host, netip.AddrPortFrom(src, s.port), ep.dst, buf)
	}
	return nil
}

// source chooses the address to send from. It is invalid, without an error, when the host
// has none and the datagrams are to be lost silently.
func (b *Bind) source(ep *Endpoint) (netip.Addr, error) {
	n := b.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted := ep.SrcIP()
	src, ok := b.host.source(wanted, ep.dst.Addr())
	if wanted.IsValid() && src != wanted {
		ep.ClearSrc()
	}
	if !ok && n.opt.Unreachable {
		return src, fmt.Errorf("send to %s: %w", ep.dst, syscall.ENETUNREACH)
	}
	return src, nil
}

// ParseEndpoint reads address:port.
func (b *Bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	dst, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	return &Endpoint{dst: netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())}, nil
}

// SetMark keeps the mark for Mark; nothing on this network looks at it.
func (b *Bind) SetMark(mark uint32) error {
	b.mark.Store(mark)
	return nil
}

// Mark returns what SetMark was told last.
func (b *Bind) Mark() uint32 { return b.mark.Load() }

// BatchSize returns Options.BatchSize.
func (b *Bind) BatchSize() int { return b.host.net.opt.BatchSize }

// OnNewSource sets a function that is called, on the receiving goroutine, when a datagram
// comes from an address that did not speak to this socket before. It must not block.
func (b *Bind) OnNewSource(f func()) { b.newSource.Store(&f) }

// Overflow returns how many datagrams were dropped because nobody read them in time.
func (b *Bind) Overflow() uint64 { return b.overflow.Load() }

// Host returns the host the Bind is on.
func (b *Bind) Host() *Host { return b.host }

// Port returns the open port, 0 when closed.
func (b *Bind) Port() uint16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.socket == nil {
		return 0
	}
	return b.socket.port
}

// Endpoint is a conn.Endpoint of this network: where a peer is, and from which of our
// addresses it is spoken to.
type Endpoint struct {
	dst netip.AddrPort
	src atomic.Pointer[netip.Addr] // nil: any
}

var _ conn.Endpoint = (*Endpoint)(nil)

// ClearSrc forgets the source, so that the host chooses it again.
func (e *Endpoint) ClearSrc() { e.src.Store(nil) }

// SrcIP returns the source, invalid when none is chosen.
func (e *Endpoint) SrcIP() netip.Addr {
	if src := e.src.Load(); src != nil {
		return *src
	}
	return netip.Addr{}
}

// SrcToString returns SrcIP as text, "" when none is chosen.
func (e *Endpoint) SrcToString() string {
	if src := e.SrcIP(); src.IsValid() {
		return src.String()
	}
	return ""
}

// DstToString returns address:port.
func (e *Endpoint) DstToString() string { return e.dst.String() }

// DstToBytes returns address and port for wireguard-go's cookies.
func (e *Endpoint) DstToBytes() []byte {
	b, _ := e.dst.MarshalBinary() // it has no error
	return b
}

// DstIP returns the address of the peer.
func (e *Endpoint) DstIP() netip.Addr { return e.dst.Addr() }

// Dst returns address and port of the peer.
func (e *Endpoint) Dst() netip.AddrPort { return e.dst }
