package devicetest

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Link says what happens to packets between two hosts. The zero value carries all at once.
type Link struct {
	Loss   float64       // share of packets that vanish, 0 to 1
	Delay  time.Duration // one way
	Jitter time.Duration // up to this much is added to Delay, evenly spread; it reorders packets
	// MTU is the largest IP packet carried, in bytes with IP and UDP headers; larger ones
	// vanish, as behind a router whose ICMP is filtered. 0 carries all sizes.
	MTU int
}

// Options of a Network. The zero value is a perfect network.
type Options struct {
	Seed uint64 // of loss and jitter: equal seeds lose alike when packets come in equal order

	// The link between any two hosts that have none of their own: see Network.SetLink.
	Loss   float64
	Delay  time.Duration
	Jitter time.Duration
	MTU    int

	// Unreachable makes a send to a family that the host has no address of fail with
	// ENETUNREACH, as a system without a route does. Otherwise it is silently lost.
	Unreachable bool
	BatchSize   int // packets per receive and send of a Bind; 0 is 8
	QueueSize   int // datagrams that wait in a Bind for its reader; more are dropped and counted; 0 is 4096
}

// Datagram is a UDP datagram as a Tap sees it, on the wire between the outermost NATs.
type Datagram struct {
	From, To *Host // To is nil when nobody would get it: no such address, or a NAT filters it
	Src, Dst netip.AddrPort
	Payload  []byte // the tap may look at it, not change or keep it
}

func (d Datagram) String() string {
	return fmt.Sprintf("%s > %s, %d bytes", d.Src, d.Dst, len(d.Payload))
}

// Verdict is what a Tap does with a packet.
type Verdict int

// The verdicts.
const (
	Pass Verdict = iota
	Drop
)

// Stats counts datagrams by what became of them. Sent is the sum of all others and of those
// that are under way.
type Stats struct {
	Sent      uint64
	Delivered uint64 // put into the queue of a Bind
	Lost      uint64 // by Link.Loss
	TooBig    uint64 // by Link.MTU
	Blocked   uint64 // by Network.Block
	Tapped    uint64 // by a Tap that said Drop
	NoRoute   uint64 // nobody has the address, or a NAT has no mapping or filters it
	NoPort    uint64 // the host has no Bind open on the port
	Overflow  uint64 // the Bind's queue was full
}

// Network connects hosts. Make one with NewNetwork.
type Network struct {
	opt  Options
	root realm

	mu      sync.Mutex
	rand    *rand.Rand
	links   map[pair]Link
	blocked map[pair]bool
	taps    []*tap
	stats   Stats
	flying  flightQueue
	flights uint64 // number of the next flight, so that equal times keep their order
	running bool
	closed  bool

	wake chan struct{} // size one: look at flying again
	done chan struct{}
	wg   sync.WaitGroup
}

type tap struct{ f func(Datagram) Verdict }

// pair names the way from one host to another.
type pair struct{ from, to *Host }

// NewNetwork returns a network without hosts.
func NewNetwork(o Options) *Network {
	if o.BatchSize == 0 {
		o.BatchSize = 8
	}
	if o.QueueSize == 0 {
		o.QueueSize = 4096
	}
	return &Network{
		opt:     o,
		root:    realm{at: make(map[netip.Addr]station)},
		rand:    rand.New(rand.NewPCG(o.Seed, 0x57494c4c)),
		links:   make(map[pair]Link),
		blocked: make(map[pair]bool),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// Close loses what is under way and all that is sent later, and waits for the network's
// goroutine. It does not close the Binds: their owners do. It may be called twice.
func (n *Network) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.done)
	}
	n.mu.Unlock()
	n.wg.Wait()
}

// SetLink sets what happens between two hosts, both ways.
func (n *Network) SetLink(a, b *Host, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[pair{a, b}], n.links[pair{b, a}] = l, l
}

// SetDefaultLink sets what happens between all hosts that SetLink was not told of.
func (n *Network) SetDefaultLink(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opt.Loss, n.opt.Delay, n.opt.Jitter, n.opt.MTU = l.Loss, l.Delay, l.Jitter, l.MTU
}

// Block cuts two hosts off from each other, both ways, until Unblock.
func (n *Network) Block(a, b *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked[pair{a, b}], n.blocked[pair{b, a}] = true, true
}

// Unblock undoes Block.
func (n *Network) Unblock(a, b *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.blocked, pair{a, b})
	delete(n.blocked, pair{b, a})
}

// Tap shows every packet to f as it is sent, before loss; the first tap that says Drop ends
// it. f runs on the sender's goroutine, without locks: it may call all methods, and must not
// wait for the packet to arrive. The returned function takes the tap away.
func (n *Network) Tap(f func(Datagram) Verdict) (remove func()) {
	t := &tap{f}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taps = append(slices.Clip(n.taps), t)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.taps = slices.DeleteFunc(slices.Clone(n.taps), func(o *tap) bool { return o == t })
	}
}

// Stats returns the counters.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// flight is a packet under way.
type flight struct {
	Datagram
	outer *realm // where Dst means something
	due   time.Time
	seq   uint64
}

// send takes a packet from a host's socket. The payload is copied.
func (n *Network) send(from *Host, src, dst netip.AddrPort, payload []byte) {
	f := &flight{Datagram: Datagram{From: from, Src: src, Dst: dst, Payload: slices.Clone(payload)}}
	n.mu.Lock()
	n.stats.Sent++
	if n.closed {
		n.stats.NoRoute++
		n.mu.Unlock()
		return
	}
	now := time.Now()
	f.outer, f.Src = from.realm.outward(f.Src, dst, now)
	f.To, _ = f.outer.inward(f.Src, dst, now)
	taps := n.taps
	n.mu.Unlock()

	dropped := slices.ContainsFunc(taps, func(t *tap) bool { return t.f(f.Datagram) == Drop })

	n.mu.Lock()
	if n.sinks(f, dropped) {
		n.mu.Unlock()
		return
	}
	delay := n.delay(n.link(f))
	if delay > 0 {
		n.launch(f, now.Add(delay))
		n.mu.Unlock()
		return
	}
	n.land(f, now)
	n.mu.Unlock()
}

// sinks reports whether the packet never arrives, and counts why.
func (n *Network) sinks(f *flight, dropped bool) bool {
	l := n.link(f)
	switch {
	case dropped:
		n.stats.Tapped++
	case n.blocked[pair{f.From, f.To}]:
		n.stats.Blocked++
	case l.MTU > 0 && wireSize(f.Dst.Addr(), f.Payload) > l.MTU:
		n.stats.TooBig++
	case l.Loss > 0 && n.rand.Float64() < l.Loss:
		n.stats.Lost++
	default:
		return false
	}
	return true
}

func wireSize(dst netip.Addr, payload []byte) int {
	if dst.Is4() {
		return 20 + 8 + len(payload)
	}
	return 40 + 8 + len(payload)
}

func (n *Network) link(f *flight) Link {
	if l, ok := n.links[pair{f.From, f.To}]; ok {
		return l
	}
	return Link{Loss: n.opt.Loss, Delay: n.opt.Delay, Jitter: n.opt.Jitter, MTU: n.opt.MTU}
}

func (n *Network) delay(l Link) time.Duration {
	if l.Jitter <= 0 {
		return l.Delay
	}
	return l.Delay + time.Duration(n.rand.Int64N(int64(l.Jitter)+1))
}

// land puts the packet into the queue of whoever has its destination now.
func (n *Network) land(f *flight, now time.Time) {
	host, dst := f.outer.inward(f.Src, f.Dst, now)
	if host == nil {
		n.stats.NoRoute++
		return
	}
	s := host.ports[dst.Port()]
	if s == nil {
		n.stats.NoPort++
		return
	}
	select {
	case s.queue <- datagram{src: f.Src, dst: dst.Addr(), payload: f.Payload}:
		n.stats.Delivered++
	default:
		n.stats.Overflow++
		s.bind.overflow.Add(1)
	}
}

// launch hands the packet to the goroutine that waits for its time, started with the first.
func (n *Network) launch(f *flight, due time.Time) {
	if n.closed {
		n.stats.NoRoute++
		return
	}
	f.due, f.seq = due, n.flights
	n.flights++
	heap.Push(&n.flying, f)
	if !n.running {
		n.running = true
		n.wg.Go(n.fly)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// fly lands packets when they are due, in order.
func (n *Network) fly() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-n.done:
			return
		case <-n.wake:
		case <-timer.C:
		}
		if next, ok := n.landDue(); ok {
			timer.Reset(time.Until(next))
		}
	}
}

func (n *Network) landDue() (next time.Time, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for len(n.flying) > 0 && !n.flying[0].due.After(now) {
		n.land(heap.Pop(&n.flying).(*flight), now)
	}
	if len(n.flying) == 0 {
		return time.Time{}, false
	}
	return n.flying[0].due, true
}

// flightQueue is a heap by time of arrival.
type flightQueue []*flight

func (q flightQueue) Len() int { return len(q) }
func (q flightQueue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].seq < q[j].seq
}
func (q flightQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *flightQueue) Push(x any)   { *q = append(*q, x.(*flight)) }
func (q *flightQueue) Pop() any {
	last := len(*q) - 1
	f := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return f
}
