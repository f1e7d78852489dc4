package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stillwire/stillwire/netstack"
)

const (
	udpPort  = 7000
	tcpPort  = 7001
	burst    = 5                // datagrams at a beat: at 20 ms 250 a second in each direction of each pair
	datagram = 512              // bytes
	chunk    = 2 << 10          // bytes of TCP at a beat: at 20 ms 100 kB a second each way
	patience = 30 * time.Second // for the next of what is still under way at the end
)

// flows are all traffic between the nodes, and what became of it.
type flows struct {
	sent, received atomic.Int64 // datagrams, each counted once
	twice          atomic.Int64 // datagrams that came again
	streamed       atomic.Int64 // TCP bytes that came, in order and unchanged
	resets         atomic.Int64 // TCP connections that broke, or carried wrong bytes

	beat    time.Duration
	stop    chan struct{} // closed: nothing new is sent
	sending sync.WaitGroup
	reading sync.WaitGroup
	streams sync.WaitGroup
	sockets []io.Closer
}

// startFlows opens a UDP flow in each direction and one TCP connection for each pair.
func startFlows(ctx context.Context, nodes []*node, beat time.Duration) (*flows, error) {
	f := &flows{beat: beat, stop: make(chan struct{})}
	var listeners []net.Listener
	for i, n := range nodes {
		c, err := n.stack.ListenUDP(netip.AddrPortFrom(n.inner, udpPort))
		if err != nil {
			return f, fmt.Errorf("node %s: %w", n.name, err)
		}
		f.sockets = append(f.sockets, c)
		f.reading.Go(func() { f.receive(c) })
		l, err := n.stack.ListenTCP(netip.AddrPortFrom(n.inner, tcpPort))
		if err != nil {
			return f, fmt.Errorf("node %s: %w", n.name, err)
		}
		f.sockets = append(f.sockets, l)
		listeners = append(listeners, l)
		for j, to := range nodes[:i] { // c is behind a NAT: it speaks first
			if err := f.connect(ctx, n, to, listeners[j]); err != nil {
				return f, err
			}
		}
	}
	for i, from := range nodes {
		for j, to := range nodes {
			if i != j {
				if err := f.sendTo(from, to); err != nil {
					return f, err
				}
			}
		}
	}
	return f, nil
}

func (f *flows) connect(ctx context.Context, from, to *node, l net.Listener) error {
	out, err := from.stack.DialTCP(ctx, netip.AddrPort{}, netip.AddrPortFrom(to.inner, tcpPort))
	if err != nil {
		return fmt.Errorf("connect %s to %s: %w", from.name, to.name, err)
	}
	in, err := l.Accept()
	if err != nil {
		return fmt.Errorf("node %s: %w", to.name, err)
	}
	f.sockets = append(f.sockets, out, in)
	for _, c := range []*netstack.TCPConn{out, in.(*netstack.TCPConn)} {
		f.sending.Go(func() { f.writeStream(c) })
		f.streams.Go(func() { f.readStream(c) })
	}
	return nil
}

func (f *flows) sendTo(from, to *node) error {
	c, err := from.stack.DialUDP(netip.AddrPort{}, netip.AddrPortFrom(to.inner, udpPort))
	if err != nil {
		return fmt.Errorf("node %s: %w", from.name, err)
	}
	f.sockets = append(f.sockets, c)
	f.sending.Go(func() { f.send(c) })
	return nil
}

// send sends numbered datagrams until stop.
func (f *flows) send(c net.Conn) {
	tick := time.NewTicker(f.beat)
	defer tick.Stop()
	p := make([]byte, datagram)
	for seq := uint64(0); ; {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		for range burst {
			binary.BigEndian.PutUint64(p, seq)
			if _, err := c.Write(p); err != nil {
				return
			}
			f.sent.Add(1)
			seq++
		}
	}
}

// receive counts each datagram of each sender once.
func (f *flows) receive(c net.PacketConn) {
	type id struct {
		from string
		seq  uint64
	}
	seen := make(map[id]bool)
	p := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(p)
		if err != nil {
			return
		}
		if n != datagram {
			continue
		}
		if k := (id{from.String(), binary.BigEndian.Uint64(p)}); seen[k] {
			f.twice.Add(1)
		} else {
			seen[k] = true
			f.received.Add(1)
		}
	}
}

// writeStream writes bytes that the other side knows in advance, and ends its direction.
func (f *flows) writeStream(c *netstack.TCPConn) {
	tick := time.NewTicker(f.beat)
	defer tick.Stop()
	p := make([]byte, chunk)
	for at := 0; ; at += chunk {
		select {
		case <-f.stop:
			if c.CloseWrite() != nil {
				f.resets.Add(1)
			}
			return
		case <-tick.C:
		}
		for i := range p {
			p[i] = pattern(at + i)
		}
		if _, err := c.Write(p); err != nil {
			return // the reader of this end counts it
		}
	}
}

func (f *flows) readStream(c net.Conn) {
	p := make([]byte, 1<<16)
	for at := 0; ; {
		n, err := c.Read(p)
		for i, b := range p[:n] {
			if b != pattern(at+i) {
				f.resets.Add(1)
				return
			}
		}
		at += n
		f.streamed.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			f.resets.Add(1)
			return
		}
	}
}

// pattern is a byte that depends on its place, with a period no power of two.
func pattern(i int) byte { return byte(i % 251) }

// end stops sending, waits for what is under way, and closes everything. A connection that is
// not at its end when nothing comes any more breaks by that.
func (f *flows) end() {
	close(f.stop)
	ended := make(chan struct{})
	var streams sync.WaitGroup
	streams.Go(func() {
		f.sending.Wait()
		f.streams.Wait()
		close(ended)
	})
	f.awaitRest(ended)
	f.close()
	streams.Wait()
}

// awaitRest waits until streams and datagrams are all there, for as long as some still come: on
// a busy machine it may take long.
func (f *flows) awaitRest(streams <-chan struct{}) {
	tick := time.NewTicker(f.beat)
	defer tick.Stop()
	moved := func() int64 { return f.received.Load() + f.streamed.Load() }
	last, since := moved(), time.Now()
	for time.Since(since) < patience {
		<-tick.C
		if now := moved(); now != last {
			last, since = now, time.Now()
		}
		select {
		case <-streams:
			if f.received.Load() >= f.sent.Load() {
				return
			}
		default:
		}
	}
}

func (f *flows) close() {
	for _, c := range f.sockets {
		c.Close()
	}
	f.sending.Wait()
	f.streams.Wait()
	f.reading.Wait()
}

func (f *flows) lost() int64 { return f.sent.Load() - f.received.Load() }
