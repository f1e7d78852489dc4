package device

import (
	"net/netip"
	"sync/atomic"
)

// BindStats is what a Bind is and did since Open.
type BindStats struct {
	IPv4, IPv6 SocketStats
	Sources    int // addresses lately heard that endpoints are kept of
}

// SocketStats is what the socket of one family is and did since Open. Counters go on when a
// dead socket is replaced, but for KernelDrops.
type SocketStats struct {
	Addr          netip.AddrPort // where it listens; invalid: the family is not there
	Batched       bool           // many datagrams per system call
	GSO, GRO      bool           // offloads in use
	Sticky        bool           // answers come from the address that was spoken to
	ReceiveBuffer int            // bytes, as the system counts them
	SendBuffer    int
	KernelDrops   uint64 // datagrams that found the receive buffer full

	ReceivedDatagrams, ReceivedBytes uint64
	ReceiveCalls                     uint64 // batches given to wireguard-go
	SentDatagrams, SentBytes         uint64 // handed to Send, sent or not
	SendCalls                        uint64
	SendErrors                       uint64 // calls to Send that failed
	GSOFallbacks                     uint64 // times a batch was sent again without GSO
	SourcesCleared                   uint64 // times our address of an endpoint turned out gone or off the route
	Reopened                         uint64 // times the socket was replaced
	Malformed                        uint64 // datagrams dropped because they did not fit or their control data was damaged
	FromTunnel                       uint64 // datagrams dropped because they came out of our own tunnel: see Bind.SetTunnel
}

// lineCounters are the counters behind SocketStats.
type lineCounters struct {
	receivedDatagrams, receivedBytes, receiveCalls    atomic.Uint64
	sentDatagrams, sentBytes, sendCalls, sendErrors   atomic.Uint64
	gsoFallbacks, sourcesCleared, reopened, malformed atomic.Uint64
	fromTunnel                                        atomic.Uint64
}

func (c *lineCounters) received(sizes []int) {
	count(&c.receivedDatagrams, &c.receivedBytes, &c.receiveCalls, sizes)
}

func count(datagrams, bytes, calls *atomic.Uint64, sizes []int) {
	sum := 0
	for _, size := range sizes {
		sum += size
	}
	datagrams.Add(uint64(len(sizes)))
	bytes.Add(uint64(sum))
	calls.Add(1)
}

func (c *lineCounters) sent(bufs [][]byte) {
	sum := 0
	for _, b := range bufs {
		sum += len(b)
	}
	c.sentDatagrams.Add(uint64(len(bufs)))
	c.sentBytes.Add(uint64(sum))
	c.sendCalls.Add(1)
}

// Stats returns what the Bind is and did; the zero value when it is closed.
func (b *Bind) Stats() (s BindStats) {
	o := b.open.Load()
	if o == nil {
		return s
	}
	o.v4.describe(&s.IPv4, &s.Sources)
	o.v6.describe(&s.IPv6, &s.Sources)
	return s
}

func (l *bindLine) describe(s *SocketStats, sources *int) {
	if l == nil {
		return
	}
	c := &l.count
	s.ReceivedDatagrams, s.ReceivedBytes, s.ReceiveCalls = c.receivedDatagrams.Load(), c.receivedBytes.Load(), c.receiveCalls.Load()
	s.SentDatagrams, s.SentBytes, s.SendCalls = c.sentDatagrams.Load(), c.sentBytes.Load(), c.sendCalls.Load()
	s.SendErrors, s.GSOFallbacks, s.SourcesCleared = c.sendErrors.Load(), c.gsoFallbacks.Load(), c.sourcesCleared.Load()
	s.Reopened, s.Malformed, s.FromTunnel = c.reopened.Load(), c.malformed.Load(), c.fromTunnel.Load()
	l.with(func(socket udpSocket) {
		s.Addr = socket.addr()
		socket.describe(s)
	})
	*sources += int(l.sources.count.Load())
}
