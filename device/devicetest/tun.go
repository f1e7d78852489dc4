package devicetest

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/tun"
)

// TUN is a tun.Device of channels: the test injects the packets that a device reads, and
// reads those it writes. All methods may be called from any goroutine.
type TUN struct {
	in     chan []byte
	out    chan []byte
	closed chan struct{}
	drops  atomic.Uint64
	mtu    atomic.Int64
	handle atomic.Pointer[func([]byte)]

	mu     sync.Mutex // of events and its closing
	events chan tun.Event
	done   bool
}

const (
	tunBatch = 8
	tunQueue = 8192 // packets that wait for the test
)

var _ tun.Device = (*TUN)(nil)

// NewTUN returns an open TUN that is up, with an MTU in bytes.
func NewTUN(mtu int) *TUN {
	t := &TUN{
		in:     make(chan []byte, tunBatch),
		out:    make(chan []byte, tunQueue),
		closed: make(chan struct{}),
		events: make(chan tun.Event, 16),
	}
	t.mtu.Store(int64(mtu))
	t.events <- tun.EventUp
	return t
}

// Inject gives packets to the device and waits until it takes them or has room. It returns
// os.ErrClosed when the TUN is closed. The packets are copied.
func (t *TUN) Inject(packets ...[]byte) error {
	for _, p := range packets {
		p = append([]byte(nil), p...)
		select {
		case <-t.closed:
			return os.ErrClosed
		case t.in <- p:
		}
	}
	return nil
}

// Packets returns what the device wrote, in order. The channel is never closed.
func (t *TUN) Packets() <-chan []byte { return t.out }

// Handle sets a function that gets every packet the device writes, in order and on the
// device's goroutine, instead of the Packets channel. It must not keep the packet. nil goes
// back to the channel.
func (t *TUN) Handle(f func(packet []byte)) {
	if f == nil {
		t.handle.Store(nil)
		return
	}
	t.handle.Store(&f)
}

// Drops returns how many packets were lost because 8192 waited in Packets.
func (t *TUN) Drops() uint64 { return t.drops.Load() }

// SetMTU changes the MTU and tells the device.
func (t *TUN) SetMTU(mtu int) {
	t.mtu.Store(int64(mtu))
	t.Event(tun.EventMTUUpdate)
}

// Event tells the device of an event. It is lost when 16 wait or the TUN is closed.
func (t *TUN) Event(e tun.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return
	}
	select {
	case t.events <- e:
	default:
	}
}

// Read is the device's side of Inject.
func (t *TUN) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	select {
	case <-t.closed:
		return 0, os.ErrClosed
	default:
	}
	select {
	case <-t.closed:
		return 0, os.ErrClosed
	case p := <-t.in:
		sizes[0] = copy(bufs[0][offset:], p)
	}
	for i := 1; i < len(bufs); i++ {
		select {
		case p := <-t.in:
			sizes[i] = copy(bufs[i][offset:], p)
		default:
			return i, nil
		}
	}
	return len(bufs), nil
}

// Write is the device's side of Packets and Handle. It never waits.
func (t *TUN) Write(bufs [][]byte, offset int) (int, error) {
	select {
	case <-t.closed:
		return 0, os.ErrClosed
	default:
	}
	handle := t.handle.Load()
	for _, b := range bufs {
		if handle != nil {
			(*handle)(b[offset:])
			continue
		}
		select {
		case t.out <- append([]byte(nil), b[offset:]...):
		default:
			t.drops.Add(1)
		}
	}
	return len(bufs), nil
}

// Close ends Read, Write and Inject and closes Events. It may be called twice.
func (t *TUN) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		t.done = true
		close(t.closed)
		close(t.events)
	}
	return nil
}

// File returns nil: there is none.
func (t *TUN) File() *os.File { return nil }

// MTU returns the MTU in bytes.
func (t *TUN) MTU() (int, error) { return int(t.mtu.Load()), nil }

// Name returns a name that no interface has.
func (t *TUN) Name() (string, error) { return fmt.Sprintf("test%p", t)[:15], nil }

// Events returns the events; it is closed by Close.
func (t *TUN) Events() <-chan tun.Event { return t.events }

// BatchSize returns how many packets a Read or Write carries.
func (t *TUN) BatchSize() int { return tunBatch }
