package netstack

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// socket is what TCP, UDP and ICMP endpoints have in common: gVisor's endpoint never waits,
// it says "would block" and tells a queue when to try again; socket waits, until there is
// something to do, the deadline is over, or the socket or the whole stack is closed.
type socket struct {
	stack *Stack
	ep    tcpip.Endpoint
	wq    *waiter.Queue

	read, write half
	done        chan struct{} // closed by close
	closed      atomic.Bool
}

// half is the reading or the writing side of a socket.
type half struct {
	mu       sync.Mutex // one reader, one writer at a time: bytes of two writes never mix
	entry    waiter.Entry
	ready    chan struct{} // size one: look again
	deadline deadline
}

func newSocket(s *Stack, ep tcpip.Endpoint, wq *waiter.Queue) *socket {
	c := &socket{stack: s, ep: ep, wq: wq, done: make(chan struct{})}
	c.read.register(wq, waiter.ReadableEvents|waiter.EventHUp|waiter.EventErr)
	c.write.register(wq, waiter.WritableEvents|waiter.EventHUp|waiter.EventErr)
	return c
}

func (h *half) register(wq *waiter.Queue, mask waiter.EventMask) {
	h.entry, h.ready = waiter.NewChannelEntry(mask)
	h.deadline.init()
	wq.EventRegister(&h.entry)
}

// wait returns nil when it is time to look again, or why that is over. A notification from
// before the last look only makes one look more.
func (c *socket) wait(h *half) error {
	select {
	case <-h.ready:
		return nil
	case <-h.deadline.expired():
		return errDeadline
	case <-c.done:
		return net.ErrClosed
	case <-c.stack.done:
		return net.ErrClosed
	}
}

// check is wait without waiting: it reports a deadline that is over and a closed socket.
func (c *socket) check(h *half) error {
	if c.closed.Load() || c.stack.isClosed() {
		return net.ErrClosed
	}
	select {
	case <-h.deadline.expired():
		return errDeadline
	default:
		return nil
	}
}

// receive runs try until it says anything but "would block".
func (c *socket) receive(try func() tcpip.Error) error { return c.loop(&c.read, try) }

// send runs try until it says anything but "would block".
func (c *socket) send(try func() tcpip.Error) error { return c.loop(&c.write, try) }

func (c *socket) loop(h *half, try func() tcpip.Error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := c.check(h); err != nil {
		return err
	}
	for {
		err := try()
		if _, blocked := err.(*tcpip.ErrWouldBlock); !blocked {
			return c.explain(err)
		}
		if err := c.wait(h); err != nil {
			return err
		}
	}
}

// explain turns what the endpoint says into an error, unless the socket was closed
// meanwhile: then that is the reason, whatever gVisor makes of it.
func (c *socket) explain(err tcpip.Error) error {
	if err == nil {
		return nil
	}
	if c.closed.Load() || c.stack.isClosed() {
		return net.ErrClosed
	}
	return errno(err)
}

// close closes the endpoint and ends all waits. It reports whether it was the first.
func (c *socket) close() bool {
	if !c.closed.CompareAndSwap(false, true) {
		return false
	}
	close(c.done)
	c.wq.EventUnregister(&c.read.entry)
	c.wq.EventUnregister(&c.write.entry)
	c.ep.Close()
	c.read.deadline.set(time.Time{}) // let their timers go
	c.write.deadline.set(time.Time{})
	return true
}

func (c *socket) localAddr() netip.AddrPort {
	a, err := c.ep.GetLocalAddress()
	if err != nil {
		return netip.AddrPort{}
	}
	return addrPort(a)
}

func (c *socket) remoteAddr() netip.AddrPort {
	a, err := c.ep.GetRemoteAddress()
	if err != nil {
		return netip.AddrPort{}
	}
	return addrPort(a)
}
