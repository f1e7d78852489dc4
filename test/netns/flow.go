//go:build linux

package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FlowOptions say which datagrams go from where to where.
type FlowOptions struct {
	From, To *Namespace
	// Src and Dst are bound and sent to. Port 0 of Src lets the system choose.
	Src, Dst netip.AddrPort
	Rate     int // datagrams a second; 0: 1000
	Size     int // bytes of payload, 16 at least; 0: 200
}

// Flow is a stream of numbered UDP datagrams that runs until it is stopped. A datagram that
// could not be sent counts as lost: the network did not carry it.
type Flow struct {
	opt    FlowOptions
	send   *net.UDPConn
	recv   *net.UDPConn
	cancel context.CancelFunc
	sender sync.WaitGroup
	reader sync.WaitGroup

	mu      sync.Mutex
	packets []flight // by sequence number
	got     int      // different ones received
	doubled int
	changed chan struct{} // size 1: something arrived
}

// flight is one datagram.
type flight struct {
	sent, received time.Time // received zero: not yet
	err            error     // of sending
}

const (
	flowBuffer = 16 << 20
	seqLen     = 8
)

// StartFlow starts the datagrams.
func StartFlow(t testing.TB, o FlowOptions) *Flow {
	t.Helper()
	if o.Rate == 0 {
		o.Rate = 1000
	}
	if o.Size == 0 {
		o.Size = 200
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Flow{opt: o, cancel: cancel, changed: make(chan struct{}, 1)}
	f.send = listenUDP(t, o.From, o.Src)
	f.recv = listenUDP(t, o.To, o.Dst)
	f.sender.Go(func() { f.sendAll(ctx) })
	f.reader.Go(f.receiveAll)
	t.Cleanup(f.close)
	return f
}

// listenUDP opens a socket whose buffer outlasts a reader that is kept from the CPU.
func listenUDP(t testing.TB, n *Namespace, addr netip.AddrPort) (c *net.UDPConn) {
	t.Helper()
	n.in(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err := growBuffer(c); err != nil {
		t.Fatalf("receive buffer of %s in %s: %v", addr, n.role, err)
	}
	return c
}

func growBuffer(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, flowBuffer)
	})
	return errors.Join(err, set)
}

func (f *Flow) close() {
	f.cancel()
	f.sender.Wait()
	f.send.Close()
	f.recv.Close()
	f.reader.Wait()
}

// sendAll sends in steps of a millisecond or more. What a missed tick would have sent is not
// made up for: a burst would measure the queues and not the path.
func (f *Flow) sendAll(ctx context.Context) {
	interval := max(time.Millisecond, time.Second/time.Duration(f.opt.Rate))
	burst := int(int64(f.opt.Rate) * int64(interval) / int64(time.Second))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		for range max(burst, 1) {
			f.sendOne()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// sendOne sends the number and its complement, so that all datagrams of a flow have the same
// checksum. One in 65,536 would otherwise have that of zero, which wireguard-go's TUN spoils
// in IPv6.
func (f *Flow) sendOne() {
	f.mu.Lock()
	seq := len(f.packets)
	f.packets = append(f.packets, flight{sent: time.Now()})
	f.mu.Unlock()
	b := make([]byte, max(f.opt.Size, 2*seqLen))
	binary.BigEndian.PutUint64(b, uint64(seq))
	binary.BigEndian.PutUint64(b[seqLen:], ^uint64(seq))
	if _, err := f.send.WriteToUDPAddrPort(b, f.opt.Dst); err != nil {
		f.mu.Lock()
		f.packets[seq].err = err
		f.mu.Unlock()
	}
}

func (f *Flow) receiveAll() {
	b := make([]byte, 64<<10)
	for {
		n, _, err := f.recv.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n >= seqLen {
			f.take(binary.BigEndian.Uint64(b))
		}
	}
}

func (f *Flow) take(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq >= uint64(len(f.packets)) {
		return // not of this flow
	}
	p := &f.packets[seq]
	if !p.received.IsZero() {
		f.doubled++
		return
	}
	p.received = time.Now()
	f.got++
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Sent returns how many datagrams were sent so far.
func (f *Flow) Sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.packets)
}

// patience is how long a flow waits for something that must happen.
const patience = 30 * time.Second

// AwaitSent waits until so many more datagrams were sent, for 30 s at most.
func (f *Flow) AwaitSent(ctx context.Context, more int) error {
	want := f.Sent() + more
	return f.await(ctx, func() bool { return len(f.packets) >= want })
}

// AwaitArrival waits until a datagram that is sent from now on has arrived, for 30 s at most.
func (f *Flow) AwaitArrival(ctx context.Context) error {
	from := f.Sent()
	return f.await(ctx, func() bool {
		for i := len(f.packets) - 1; i >= from; i-- {
			if !f.packets[i].received.IsZero() {
				return true
			}
		}
		return false
	})
}

// await looks with the lock held, whenever something arrives, and every few milliseconds.
func (f *Flow) await(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("did not happen"))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		f.mu.Lock()
		ok := done()
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-f.changed:
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("flow from %s to %s: %w", f.opt.Src, f.opt.Dst, context.Cause(ctx))
		}
	}
}

// underWay is how long a datagram may take at most.
const underWay = 2 * time.Second

// Stop ends the flow, gives what is under way time to arrive, and reports.
func (f *Flow) Stop() Report { return StopAll(f)[0] }

// StopAll stops several flows at once.
func StopAll(flows ...*Flow) (reports []Report) {
	for _, f := range flows {
		f.cancel()
	}
	for _, f := range flows {
		f.sender.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), underWay)
	defer cancel()
	for _, f := range flows {
		f.await(ctx, func() bool { return f.got == len(f.packets) })
		f.close()
		reports = append(reports, f.report())
	}
	return reports
}
