package proxy

import (
	"slices"
	"sync/atomic"
)

// Counters is what a server has done since it was made. It is a snapshot: it does not
// change, and its numbers were read one after the other.
type Counters struct {
	Accepted uint64 // client connections; for a UDPForward, mappings
	Live     int    // of these, those that have not ended, refused ones that are being told included
	Opened   uint64 // connections to targets; for UDP, sockets towards targets

	Sent     uint64 // payload bytes from clients to targets
	Received uint64 // payload bytes from targets to clients

	DatagramsSent     uint64 // from clients to targets
	DatagramsReceived uint64 // from targets to clients

	Refused map[Reason]uint64 // flows and requests that were not served
	Cut     map[Reason]uint64 // flows that did not end in order
	Dropped map[Reason]uint64 // datagrams
}

// counts are the live counters of one server.
type counts struct {
	accepted, opened                 atomic.Uint64
	sent, received                   atomic.Uint64
	datagramsSent, datagramsReceived atomic.Uint64
	refused, cut, dropped            byReason
}

func (c *counts) snapshot(live int) Counters {
	return Counters{
		Accepted:          c.accepted.Load(),
		Live:              live,
		Opened:            c.opened.Load(),
		Sent:              c.sent.Load(),
		Received:          c.received.Load(),
		DatagramsSent:     c.datagramsSent.Load(),
		DatagramsReceived: c.datagramsReceived.Load(),
		Refused:           c.refused.snapshot(),
		Cut:               c.cut.snapshot(),
		Dropped:           c.dropped.snapshot(),
	}
}

// byReason counts per reason without a lock.
type byReason [32]atomic.Uint64

func (b *byReason) add(r Reason) { b[slices.Index(reasons, r)].Add(1) }

func (b *byReason) snapshot() map[Reason]uint64 {
	m := make(map[Reason]uint64)
	for i, r := range reasons {
		if n := b[i].Load(); n > 0 {
			m[r] = n
		}
	}
	return m
}
