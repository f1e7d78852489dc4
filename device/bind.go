package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"
	"golang.zx2c4.com/wireguard/conn"
)

// BindOptions of a Bind. The zero value listens on all addresses, with every speed-up that
// the system has.
type BindOptions struct {
	// Addrs are the local addresses to listen on, at most one of each family; a family that
	// is not named is not served. None: all addresses of both families.
	Addrs []netip.Addr
	// NoGSO and NoGRO begin with UDP segmentation offload on sending, and with UDP receive
	// offload, turned off. SetGSO and SetGRO change it later. Off Linux there are none.
	NoGSO, NoGRO bool
	// ReceiveBuffer and SendBuffer are the sizes of the socket buffers in bytes. 0 is 8 MiB.
	// The system may grant less: see SocketStats.
	ReceiveBuffer, SendBuffer int
	Log                       zerolog.Logger // the zero Logger is silent
}

// defaultSocketBuffer holds what 10 Gbit/s bring while the reader is not scheduled for 6 ms.
const defaultSocketBuffer = 8 << 20

// Bind is the conn.Bind of Stillwire: a UDP socket of each family on one port.
//
// On Linux it moves up to 128 datagrams per system call, with UDP GSO and GRO where the
// kernel has them, answers from the address that was spoken to (IP_PKTINFO, IPV6_PKTINFO),
// and allocates nothing per packet. Elsewhere, and in sandboxes without these calls, it
// moves them one by one.
//
// A socket that dies is opened again on the same port inside the receive function, so that
// wireguard-go keeps its sessions. All methods may be called from any goroutine; each
// receive function belongs to one goroutine at a time. A Bind starts no goroutine of its own
// but for the one that watches routes on Linux, which Close waits for.
type Bind struct {
	opt       BindOptions
	kernel    kernel
	newSource func()
	noGSO     atomic.Bool
	noGRO     atomic.Bool
	mark      atomic.Uint32
	tunnel    atomic.Uint32 // index of the interface to keep away from; 0: none

	mu   sync.Mutex // of Open, Close and SetMark
	open atomic.Pointer[openBind]
}

// openBind is what lies between an Open and the next Close.
type openBind struct {
	v4, v6 *bindLine // nil: the system does not have the family
	routes *routeWatch
}

var _ conn.Bind = (*Bind)(nil)

// NewBind returns a closed Bind.
func NewBind(o BindOptions) *Bind {
	if o.ReceiveBuffer == 0 {
		o.ReceiveBuffer = defaultSocketBuffer
	}
	if o.SendBuffer == 0 {
		o.SendBuffer = defaultSocketBuffer
	}
	b := &Bind{opt: o, kernel: systemKernel(), newSource: func() {}}
	b.noGSO.Store(o.NoGSO)
	b.noGRO.Store(o.NoGRO)
	return b
}

// OnNewSource sets a function that is called, on the receiving goroutine, when a datagram
// comes from an address that is not among those lately heard: a peer may have roamed, or a
// stranger knocked. It must not block. Set it before Open.
func (b *Bind) OnNewSource(f func()) { b.newSource = f }

// Open listens on the port, the same for both families; 0 takes one that is free in both. A
// family that the system does not have is left out.
func (b *Bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	o, err := b.listen(port)
	if err != nil {
		return nil, 0, err
	}
	o.routes = b.kernel.watchRoutes(&b.mark, b.opt.Log)
	o.v4.watch(o.routes)
	o.v6.watch(o.routes)
	b.open.Store(o)
	fns, actual := o.receivers()
	return fns, actual, nil
}

func (o *openBind) receivers() (fns []conn.ReceiveFunc, port uint16) {
	if o.v4 != nil {
		fns, port = append(fns, o.v4.receiveIPv4), o.v4.port
	}
	if o.v6 != nil {
		fns, port = append(fns, o.v6.receiveIPv6), o.v6.port
	}
	return fns, port
}

// portTries is how many ports that are free in one family are tried in the other.
const portTries = 100

func (b *Bind) listen(port uint16) (o *openBind, err error) {
	for range portTries {
		o, err = b.listenBoth(port)
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return o, err
}

func (b *Bind) listenBoth(port uint16) (*openBind, error) {
	addr4, addr6 := b.addrs()
	v4, err4 := b.newLine("udp4", addr4, port)
	if err4 != nil && !isNoFamily(err4) {
		return nil, err4
	}
	if v4 != nil {
		port = v4.port
	}
	v6, err6 := b.newLine("udp6", addr6, port)
	if err6 != nil && (v4 == nil || !isNoFamily(err6)) {
		v4.close()
		return nil, err6
	}
	if v4 == nil && v6 == nil {
		return nil, err4
	}
	return &openBind{v4: v4, v6: v6}, nil
}

// addrs returns where to listen in each family; invalid is not at all.
func (b *Bind) addrs() (v4, v6 netip.Addr) {
	if len(b.opt.Addrs) == 0 {
		return netip.IPv4Unspecified(), netip.IPv6Unspecified()
	}
	for _, a := range b.opt.Addrs {
		if a = a.Unmap(); a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}

// errNoFamily is the state of a family that is not wanted.
var errNoFamily = fmt.Errorf("not listened on: %w", syscall.EAFNOSUPPORT)

// isNoFamily reports whether a socket could not be had because the system lacks the family.
func isNoFamily(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

// Close ends the receive functions, which return net.ErrClosed, and frees the port. It may
// be called twice, and at any time.
func (b *Bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.open.Swap(nil)
	if o == nil {
		return nil
	}
	o.routes.close()
	return errors.Join(o.v4.close(), o.v6.close())
}

// Send sends each buffer as a datagram to the endpoint. It is the one place that sends.
func (b *Bind) Send(bufs [][]byte, endpoint conn.Endpoint) error {
	ep, ok := endpoint.(*udpEndpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	o := b.open.Load()
	if o == nil {
		return net.ErrClosed
	}
	line := o.v6
	if ep.dst.Addr().Is4() {
		line = o.v4
	}
	if line == nil {
		return fmt.Errorf("send to %s: this family is %w", ep.dst, errNoFamily)
	}
	return line.send(bufs, ep)
}

// SetMark sets SO_MARK of all packets sent from now on, also after Close and Open. 0 is none.
// It needs CAP_NET_ADMIN on Linux, and does nothing where there are no marks.
func (b *Bind) SetMark(mark uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.mark.Swap(mark)
	o := b.open.Load()
	if o == nil || old == mark {
		return nil
	}
	err := errors.Join(o.v4.setMark(mark), o.v6.setMark(mark))
	if err != nil {
		b.mark.Store(old)
	}
	return err
}

// SetTunnel tells the index of the interface whose packets the Bind carries, 0 for none, from
// now on. Nothing is sent by it or from its addresses, unless the peer spoke to one of them,
// and what arrives on it is dropped and counted. When a link loses its last address, Linux
// takes one of another interface to send from: the peer would take our address inside of the
// tunnel for the one outside, and each side would send into its own tunnel until the session
// is dead. Open sets it for a TUN of the kernel. It does nothing off Linux.
func (b *Bind) SetTunnel(ifindex uint32) { b.tunnel.Store(ifindex) }

// ParseEndpoint reads address:port. An IPv4 address mapped into IPv6 is an IPv4 address. The
// zone of a link-local address is the name or the index of an interface that exists.
func (b *Bind) ParseEndpoint(s string) (conn.Endpoint, error) {
	dst, err := netip.ParseAddrPort(s)
	if err != nil {
		return nil, err
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	ep := &udpEndpoint{dst: dst}
	if err := ep.wire.encode(dst, netip.Addr{}, 0); err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", s, err)
	}
	return ep, nil
}

// BatchSize returns how many datagrams one call moves at most.
func (b *Bind) BatchSize() int { return bindBatch }

// SetGSO turns UDP segmentation offload on sending on or off, and tries it again when it was
// found broken.
func (b *Bind) SetGSO(on bool) {
	b.noGSO.Store(!on)
	b.each(func(s udpSocket) { s.setGSO(on) })
}

// SetGRO turns UDP receive offload on or off. It goes off at the first
// moment the socket is empty, so that nothing that waits in it is lost.
func (b *Bind) SetGRO(on bool) {
	b.noGRO.Store(!on)
	b.each(func(s udpSocket) { s.setGRO(on) })
}

// Rebind opens the sockets again on the same port and forgets which of our addresses each
// peer was spoken to from. Call it when the network changed in a way that the system does
// not show, such as waking from sleep. Sessions go on; what waits unread is lost.
func (b *Bind) Rebind() {
	if o := b.open.Load(); o != nil {
		o.v4.rebind()
		o.v6.rebind()
	}
}

func (b *Bind) each(f func(udpSocket)) {
	if o := b.open.Load(); o != nil {
		o.v4.with(f)
		o.v6.with(f)
	}
}
