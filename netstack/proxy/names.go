package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

const (
	maxNames       = 256     // names that an association knows at one time
	maxNameWaiting = 64      // datagrams that wait for one name
	maxNamesBytes  = 1 << 20 // of all datagrams that wait
	minNameLife    = 10 * time.Second
)

// nameCache turns names into addresses by way of the dialer, and keeps what it got for as
// long as datagrams go there: a destination that moved in the middle of a conversation would
// break it.
type nameCache struct {
	f    *flow
	ctx  context.Context
	sink func(ctx context.Context, payload []byte, to netip.AddrPort)

	mu      sync.Mutex
	names   map[string]*name
	waiting int // bytes
	work    sync.WaitGroup
}

// name is one HOST:PORT.
type name struct {
	addr    netip.AddrPort // valid: known, and nothing waits
	used    time.Time
	waiting [][]byte
}

func newNameCache(f *flow, sink func(context.Context, []byte, netip.AddrPort)) *nameCache {
	return &nameCache{f: f, sink: sink, names: make(map[string]*name)}
}

// send passes the payload on, now or once the name is resolved. It is called from one
// goroutine.
func (c *nameCache) send(payload []byte, to string) {
	now := time.Now()
	c.mu.Lock()
	n := c.lookUp(to, now)
	if n == nil || !n.addr.IsValid() && (len(n.waiting) == maxNameWaiting || c.waiting+len(payload) > maxNamesBytes) {
		c.mu.Unlock()
		c.f.s.counts.dropped.add(ReasonQueueFull)
		return
	}
	n.used = now
	addr := n.addr
	if !addr.IsValid() {
		n.waiting = append(n.waiting, append([]byte(nil), payload...))
		c.waiting += len(payload)
	}
	c.mu.Unlock()
	if addr.IsValid() {
		c.sink(c.ctx, payload, addr)
	}
}

// lookUp finds the entry of a name or makes one and starts to resolve it. It returns nil
// when there are too many that are in use.
func (c *nameCache) lookUp(to string, now time.Time) *name {
	n := c.names[to]
	if n != nil && !(n.addr.IsValid() && c.stale(n, now)) {
		return n
	}
	if n == nil && len(c.names) >= maxNames && !c.evict() {
		return nil
	}
	n = &name{}
	c.names[to] = n
	c.work.Go(func() { c.resolve(to, n) })
	return n
}

func (c *nameCache) stale(n *name, now time.Time) bool {
	return c.f.o.UDPTimeout > 0 && now.Sub(n.used) > max(c.f.o.UDPTimeout, minNameLife)
}

// evict forgets the name that was not used for longest, unless all are being resolved.
func (c *nameCache) evict() bool {
	oldest := ""
	for to, n := range c.names {
		if n.addr.IsValid() && (oldest == "" || n.used.Before(c.names[oldest].used)) {
			oldest = to
		}
	}
	delete(c.names, oldest)
	return oldest != ""
}

// resolve asks the dialer, whose connection tells the address, and sends what waits. A name
// that does not resolve is forgotten, and asked for again by the next datagram.
func (c *nameCache) resolve(to string, n *name) {
	addr, err := c.ask(to)
	if err != nil {
		c.forget(to, n, DialReason(err))
		return
	}
	for {
		waiting := c.takeWaiting(n, addr)
		if waiting == nil {
			return
		}
		for _, payload := range waiting {
			c.sink(c.ctx, payload, addr)
		}
	}
}

func (c *nameCache) ask(to string) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.f.o.DialTimeout)
	defer cancel()
	conn, err := c.f.o.Dialer.DialContext(ctx, "udp", to)
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	addr := addrPortOf(conn.RemoteAddr())
	if !addr.IsValid() {
		return addr, fmt.Errorf("%s %w", to, errNoAddress)
	}
	return addr, nil
}

// takeWaiting returns what waits for the name. When nothing does, the address is made known,
// so that no later datagram overtakes one that waited.
func (c *nameCache) takeWaiting(n *name, addr netip.AddrPort) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := n.waiting
	n.waiting = nil
	c.release(waiting)
	if waiting == nil {
		n.addr = addr
	}
	return waiting
}

func (c *nameCache) forget(to string, n *name, r Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n.waiting {
		c.f.s.counts.dropped.add(r)
	}
	c.release(n.waiting)
	delete(c.names, to)
	c.f.log.Debug().Str("target", to).Str("reason", string(r)).Msg("name not resolved")
}

func (c *nameCache) release(waiting [][]byte) {
	for _, payload := range waiting {
		c.waiting -= len(payload)
	}
}

func (c *nameCache) wait() { c.work.Wait() }
