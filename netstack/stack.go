package netstack

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/rs/zerolog"
	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	// DefaultMTU is what is left of a 1500-byte path under IPv6 and WireGuard headers.
	DefaultMTU = 1420
	// DefaultQueueLength is how many packets wait for encryption before senders wait. At
	// DefaultMTU it holds 1.4 MiB: some milliseconds of a fast sender.
	DefaultQueueLength = 1024

	// maxMTU is the most that fits a WireGuard message: 65535 bytes of UDP payload less
	// header and tag. The real path decides what is wise.
	maxMTU = 65535 - 32

	// batchSize is how many packets one Read or Write moves at most. It is what
	// wireguard-go's own bind and TUN device use.
	batchSize = 128

	// nicID is the number of the only card in the stack.
	nicID = tcpip.NICID(1)
)

// Buffer sizes in bytes. gVisor tunes TCP buffers between the default and the maximum to
// what a connection needs: 8 MiB in and 6 MiB out carry about half a gigabit per second
// over 100 ms. A UDP socket keeps 2 MiB, since what arrives in one batch must fit: with
// gVisor's own 32 KiB most of a burst is lost.
const (
	tcpBufferMin          = 4 << 10
	tcpBufferDefault      = 1 << 20
	tcpReceiveBufferMax   = 8 << 20
	tcpSendBufferMax      = 6 << 20
	datagramReceiveBuffer = 2 << 20
	datagramSendBuffer    = 256 << 10
	datagramBufferMax     = 8 << 20
)

// StackOptions say what a Stack is. The zero value works and has no addresses.
type StackOptions struct {
	// Name is what the stack is called in logs and by tun.Device.Name. "" is "netstack".
	Name string
	// Addresses are the tunnel addresses of this end, as in wg-quick's Address. A new
	// connection comes from the one that has most leading bits in common with its
	// destination; among equals, from the first.
	Addresses []netip.Prefix
	// MTU is the size in bytes of the largest IP packet in the tunnel. 0 is DefaultMTU. It
	// must be at least 1280 when there is an IPv6 address (RFC 8200), else at least 576.
	MTU int
	// QueueLength is how many outbound packets wait for WireGuard before those who send
	// wait too. 0 is DefaultQueueLength.
	QueueLength int
	// Log gets what changes. The zero value is silent.
	Log zerolog.Logger
}

// Stack is a TCP/IP stack in the process, and the tun.Device through which WireGuard feeds
// it. Read and Write are WireGuard's side; DialTCP, ListenTCP, DialUDP, ListenPing and the
// like are the program's side. It owns no goroutine but gVisor's; Close ends them.
//
// All methods may be called from any goroutine, Close included.
type Stack struct {
	name string
	log  zerolog.Logger

	ip         *stack.Stack
	link       *link
	reader     reader
	coalescers coalescers

	received traffic // what Write got
	sent     traffic // what Read returned
	drops    dropCounters

	// life is held for reading while an endpoint is made and for writing while all are
	// ended, so that none slips through. No holder of it waits for anything but the link's
	// queue, which Close ends first.
	life sync.RWMutex
	done chan struct{} // closed when Close begins
	once sync.Once

	events   chan tun.Event
	eventsMu sync.Mutex // guards sending on events against closing it

	addressMu sync.Mutex // one change of addresses or MTU at a time
	addresses addressSnapshot
}

var _ tun.Device = (*Stack)(nil)

// NewStack makes a stack. It is up at once; what it sends waits in its queue until
// somebody calls Read, which wireguard-go's device does.
func NewStack(o StackOptions) (*Stack, error) {
	mtu := cmp.Or(o.MTU, DefaultMTU)
	if err := checkAddresses(o.Addresses, mtu); err != nil {
		return nil, err
	}
	if o.QueueLength < 0 {
		return nil, fmt.Errorf("QueueLength %d is negative: use 0 for the default", o.QueueLength)
	}
	s := &Stack{
		name:   cmp.Or(o.Name, "netstack"),
		log:    o.Log,
		done:   make(chan struct{}),
		events: make(chan tun.Event, 2), // "up", and one "MTU changed" that stands for all
	}
	s.link = &link{queue: newQueue(cmp.Or(o.QueueLength, DefaultQueueLength)), drops: &s.drops}
	s.link.mtu.Store(uint32(mtu))
	s.ip = newIPStack()
	if err := s.start(o.Addresses); err != nil {
		s.Close()
		return nil, err
	}
	s.events <- tun.EventUp
	return s, nil
}

// newIPStack is gVisor with IPv4, IPv6, TCP, UDP and ICMP echo. HandleLocal keeps what
// goes to our own addresses inside. Nothing else is on: no forwarding, and, as gVisor's
// defaults have it, no router solicitation, multicast report or duplicate address
// detection, which have no place in a tunnel where every address is given.
func newIPStack() *stack.Stack {
	return stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocol,
			ipv6.NewProtocolWithOptions(ipv6.Options{}),
		},
		TransportProtocols: []stack.TransportProtocolFactory{
			tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6,
		},
		HandleLocal: true,
	})
}

func (s *Stack) start(addresses []netip.Prefix) error {
	if err := s.setOptions(); err != nil {
		return err
	}
	if err := s.ip.CreateNIC(nicID, s.link); err != nil {
		return fmt.Errorf("create network card: %s", err)
	}
	s.ip.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nicID},
		{Destination: header.IPv6EmptySubnet, NIC: nicID},
	})
	return s.setAddresses(addresses)
}

// setOptions chooses what gVisor lets us choose.
//
// Congestion control is Reno: gVisor's CUBIC overflows its window arithmetic and, with 16
// streams on one tunnel, starves some of them. SACK (RFC 2018) is on, and loss detection
// is RACK (RFC 8985): it is fairer among many streams and cheaper, at about a tenth of
// what a single stream can do.
func (s *Stack) setOptions() error {
	var (
		sack     = tcpip.TCPSACKEnabled(true)
		recovery = tcpip.TCPRACKLossDetection
		control  = tcpip.CongestionControlOption("reno")
		moderate = tcpip.TCPModerateReceiveBufferOption(true)
		receive  = tcpip.TCPReceiveBufferSizeRangeOption{Min: tcpBufferMin, Default: tcpBufferDefault, Max: tcpReceiveBufferMax}
		send     = tcpip.TCPSendBufferSizeRangeOption{Min: tcpBufferMin, Default: tcpBufferDefault, Max: tcpSendBufferMax}
	)
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &recovery, &control, &moderate, &receive, &send} {
		if err := s.ip.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return fmt.Errorf("set TCP option %T: %s", option, err)
		}
	}
	for _, option := range []any{
		tcpip.ReceiveBufferSizeOption{Min: stack.MinBufferSize, Default: datagramReceiveBuffer, Max: datagramBufferMax},
		tcpip.SendBufferSizeOption{Min: stack.MinBufferSize, Default: datagramSendBuffer, Max: datagramBufferMax},
	} {
		if err := s.ip.SetOption(option); err != nil {
			return fmt.Errorf("set buffer size %+v: %s", option, err)
		}
	}
	return nil
}

// Name is the name given in the options; a stack has none in the operating system.
func (s *Stack) Name() (string, error) { return s.name, nil }

// File is nil: there is no descriptor behind a stack.
func (s *Stack) File() *os.File { return nil }

// BatchSize is how many packets Read and Write are best called with.
func (s *Stack) BatchSize() int { return batchSize }

// MTU is the size in bytes of the largest packet that Read returns.
func (s *Stack) MTU() (int, error) { return int(s.link.MTU()), nil }

// Events tells WireGuard that the stack is up and when the MTU has changed. It is closed
// by Close.
func (s *Stack) Events() <-chan tun.Event { return s.events }

// GVisor is the stack underneath, for what this package does not offer. Do not close it,
// remove its card or its addresses.
func (s *Stack) GVisor() *stack.Stack { return s.ip }

// Close resets every connection, ends every wait in Read, Write, dials, reads and writes
// (with net.ErrClosed or os.ErrClosed), and returns when gVisor's goroutines have ended. It
// may be called from anywhere and more than once; every call returns when all is done.
func (s *Stack) Close() error {
	s.once.Do(s.close)
	return nil
}

func (s *Stack) close() {
	close(s.done)
	s.link.Close() // first: who waits for room holds locks that are needed below
	s.drops.add(DropClosed, s.reader.release())
	s.life.Lock()
	s.ip.Close()
	s.life.Unlock()
	s.abortLate()
	s.ip.Wait()
	s.eventsMu.Lock()
	close(s.events)
	s.eventsMu.Unlock()
}

// abortLate ends connections that a listener accepted while the others were being ended:
// once gVisor's workers have stopped there can be no more of them.
func (s *Stack) abortLate() {
	s.ip.TransportProtocolInstance(tcp.ProtocolNumber).Wait()
	for _, endpoint := range s.ip.RegisteredEndpoints() {
		endpoint.Abort()
	}
}

// isClosed reports whether Close has begun.
func (s *Stack) isClosed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// whileOpen runs f, which may create and start endpoints, unless the stack is closed.
func (s *Stack) whileOpen(f func() error) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if s.isClosed() {
		return net.ErrClosed
	}
	return f()
}

// SetMTU changes the size of the largest packet and tells WireGuard. Connections go on:
// new segments of those that are open are as large as agreed before and, where that is too
// large now, fragmented.
func (s *Stack) SetMTU(mtu int) error {
	s.addressMu.Lock()
	defer s.addressMu.Unlock()
	if err := checkAddresses(s.addresses.prefixes(), mtu); err != nil {
		return err
	}
	if uint32(mtu) == s.link.MTU() {
		return nil
	}
	err := s.whileOpen(func() error {
		if err := s.ip.SetNICMTU(nicID, uint32(mtu)); err != nil {
			return fmt.Errorf("set MTU %d: %s", mtu, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.log.Info().Str("stack", s.name).Int("mtu", mtu).Msg("mtu changed")
	s.announceMTU()
	return nil
}

// announceMTU never waits: the reader of an event asks for the MTU of that moment, so one
// event that is still unread stands for this change too.
func (s *Stack) announceMTU() {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	if s.isClosed() {
		return
	}
	select {
	case s.events <- tun.EventMTUUpdate:
	default:
	}
}
