package netstack

import (
	"maps"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// DropReason says why a packet went no further. The set is closed; the text is used
// unchanged in logs and as a metric's label.
type DropReason string

const (
	DropBadPacket      DropReason = "bad_packet"      // neither IPv4 nor IPv6, or headers that do not fit
	DropBadChecksum    DropReason = "bad_checksum"    // TCP or UDP checksum wrong: broken before WireGuard got it
	DropBadSource      DropReason = "bad_source"      // from an address nobody may send from
	DropNoAddress      DropReason = "no_address"      // to an address that is not ours
	DropNoProtocol     DropReason = "no_protocol"     // a transport protocol that the stack does not speak
	DropNoPort         DropReason = "no_port"         // UDP to a port that nobody listens on
	DropSocketFull     DropReason = "socket_full"     // UDP that its reader did not fetch in time
	DropListenFull     DropReason = "listen_full"     // a new TCP connection that its listener did not accept in time
	DropConnectionFull DropReason = "connection_full" // TCP or ICMP beyond what its endpoint could queue
	DropTooBig         DropReason = "too_big"         // larger than the buffer WireGuard reads into
	DropNotSent        DropReason = "not_sent"        // outbound: no route, or too large for its protocol
	DropClosed         DropReason = "closed"          // caught by Close
)

// ownDrops are the reasons this package counts itself; gVisor counts the others.
var ownDrops = [...]DropReason{DropBadPacket, DropTooBig, DropClosed}

// dropCounters count what gVisor never sees. The zero value is ready.
type dropCounters struct{ n [len(ownDrops)]atomic.Uint64 }

func (d *dropCounters) add(reason DropReason, n int) {
	for i := range ownDrops {
		if ownDrops[i] == reason {
			d.n[i].Add(uint64(n))
		}
	}
}

// Stats are counters since the stack was made.
type Stats struct {
	ReceivedPackets uint64 // from WireGuard
	ReceivedBytes   uint64
	SentPackets     uint64 // to WireGuard
	SentBytes       uint64
	Queued          int // packets that wait for WireGuard now
	// Drops holds every reason that occurred. One packet is counted once.
	Drops map[DropReason]uint64
}

// Stats returns the counters as they are now.
func (s *Stack) Stats() Stats {
	st := s.ip.Stats()
	drops := gvisorDrops(st)
	for i, reason := range ownDrops {
		drops[reason] += s.drops.n[i].Load()
	}
	maps.DeleteFunc(drops, func(_ DropReason, n uint64) bool { return n == 0 })
	return Stats{
		ReceivedPackets: s.received.packets.Load(),
		ReceivedBytes:   s.received.bytes.Load(),
		SentPackets:     s.sent.packets.Load(),
		SentBytes:       s.sent.bytes.Load(),
		Queued:          s.link.queue.len(),
		Drops:           drops,
	}
}

// gvisorDrops sorts gVisor's counters under our reasons. DroppedPackets counts segments and
// echo replies that found their endpoint's queue full, and again a SYN that found the
// listener's; the latter has a counter of its own and is taken off.
func gvisorDrops(st tcpip.Stats) map[DropReason]uint64 {
	overflow := st.TCP.ListenOverflowSynDrop.Value()
	dropped := st.DroppedPackets.Value()
	return map[DropReason]uint64{
		DropBadPacket: st.IP.MalformedPacketsReceived.Value() + st.IP.MalformedFragmentsReceived.Value() +
			st.NICs.MalformedL4RcvdPackets.Value() + st.TCP.InvalidSegmentsReceived.Value() + st.UDP.MalformedPacketsReceived.Value(),
		DropBadChecksum:    st.TCP.ChecksumErrors.Value() + st.UDP.ChecksumErrors.Value(),
		DropBadSource:      st.IP.InvalidSourceAddressesReceived.Value(),
		DropNoAddress:      st.IP.InvalidDestinationAddressesReceived.Value(),
		DropNoProtocol:     sumOf(st.NICs.UnknownL4ProtocolRcvdPacketCounts),
		DropNoPort:         st.UDP.UnknownPortErrors.Value(),
		DropSocketFull:     st.UDP.ReceiveBufferErrors.Value(),
		DropListenFull:     overflow + st.TCP.ListenOverflowAckDrop.Value(),
		DropConnectionFull: dropped - min(dropped, overflow),
		DropNotSent:        st.IP.OutgoingPacketErrors.Value(),
	}
}

func sumOf(m *tcpip.IntegralStatCounterMap) (n uint64) {
	for _, key := range m.Keys() {
		if counter, ok := m.Get(key); ok {
			n += counter.Value()
		}
	}
	return n
}
