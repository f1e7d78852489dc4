package main

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	echoPort = 8081
	interval = 2 * time.Millisecond
	// underWay is how long the last answers may take.
	underWay = time.Second
)

// returnAll sends back what it receives, for as long as the socket is open.
func returnAll(c *net.UDPConn) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(b[:n], from) // one lost is for the other end to count
		}
	}
}

// Flow is what became of the datagrams of a flow.
type Flow struct {
	Sent     int           // those that could not be sent among them
	Returned int           // different ones
	Gap      time.Duration // longest time between two that came back, and before and after them
}

// flow is a stream of numbered datagrams, 500 a second, that another pod returns.
type flow struct {
	mu      sync.Mutex
	conn    *net.UDPConn // nil: none runs
	end     chan struct{}
	work    sync.WaitGroup
	sent    int
	back    map[uint64]bool
	last    time.Time // something came back
	longest time.Duration
}

func (f *flow) start(to netip.AddrPort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != nil {
		return errors.New("a flow runs already")
	}
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	f.conn, f.end = conn, make(chan struct{})
	f.sent, f.back, f.last, f.longest = 0, make(map[uint64]bool), time.Now(), 0
	f.work.Go(func() { f.send(conn, f.end) })
	f.work.Go(func() { f.receive(conn) })
	return nil
}

// stop waits a second for what is under way.
func (f *flow) stop() (Flow, error) {
	f.mu.Lock()
	conn := f.conn
	f.mu.Unlock()
	if conn == nil {
		return Flow{}, errors.New("no flow runs")
	}
	close(f.end)
	if err := conn.SetReadDeadline(time.Now().Add(underWay)); err != nil {
		return Flow{}, err
	}
	f.work.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn = nil
	return Flow{f.sent, len(f.back), f.longest}, conn.Close()
}

func (f *flow) send(c *net.UDPConn, end <-chan struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	b := make([]byte, 200)
	for seq := uint64(0); ; seq++ {
		binary.BigEndian.PutUint64(b, seq)
		_, _ = c.Write(b) // counted as lost
		f.mu.Lock()
		f.sent++
		f.mu.Unlock()
		select {
		case <-tick.C:
		case <-end:
			f.mark(time.Now())
			return
		}
	}
}

// receive ends at the deadline that stop sets.
func (f *flow) receive(c *net.UDPConn) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return
		}
		if err != nil || n < 8 {
			continue // such as "connection refused", once
		}
		f.mark(time.Now())
		f.mu.Lock()
		f.back[binary.BigEndian.Uint64(b)] = true
		f.mu.Unlock()
	}
}

// mark notes how long nothing came back.
func (f *flow) mark(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.longest = max(f.longest, now.Sub(f.last))
	f.last = now
}
