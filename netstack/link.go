package netstack

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// link is the network card that gVisor sees: point to point, without link-layer header or
// address. What the stack sends goes into the queue; what Stack.Write gets goes to the
// dispatcher. It announces segmentation offload: TCP may send packets of up to 64 KiB.
type link struct {
	queue      *queue
	drops      *dropCounters
	mtu        atomic.Uint32
	dispatcher atomic.Pointer[stack.NetworkDispatcher] // nil before CreateNIC and after its removal
}

var (
	_ stack.LinkEndpoint = (*link)(nil)
	_ stack.GSOEndpoint  = (*link)(nil)
)

// WritePackets queues the packets, waiting for room (see queue). It never fails: when the
// link is closed the packets are dropped, of which gVisor would only fill the program's
// standard error with warnings.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	all := pkts.AsSlice()
	for i, pkt := range all {
		if !l.queue.push(pkt, packetsOf(pkt, int(l.mtu.Load()))) {
			l.drops.add(DropClosed, len(all)-i)
			break
		}
	}
	return len(all), nil
}

// deliver hands one packet up and consumes the caller's reference.
func (l *link) deliver(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	defer pkt.DecRef()
	d := l.dispatcher.Load()
	if d == nil {
		l.drops.add(DropClosed, 1)
		return
	}
	(*d).DeliverNetworkPacket(proto, pkt)
}

// SupportedGSO says that we cut large TCP segments, see segmenter.
func (l *link) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// GSOMaxSize is the largest segment, headers included.
func (l *link) GSOMaxSize() uint32 { return maxSegment }

// Attach is called when the card is put into the stack, and with nil when it is taken out.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.dispatcher.Store(nil)
		return
	}
	l.dispatcher.Store(&d)
}

// IsAttached reports whether the card is in a stack.
func (l *link) IsAttached() bool { return l.dispatcher.Load() != nil }

// MTU is the size in bytes of the largest IP packet that leaves.
func (l *link) MTU() uint32 { return l.mtu.Load() }

// SetMTU is called by the stack; its routes read MTU for every packet.
func (l *link) SetMTU(mtu uint32) { l.mtu.Store(mtu) }

// Capabilities are none: in particular gVisor verifies all checksums on the way in.
// WireGuard authenticates packets, yet a peer may forward what was broken before it got
// there. On the way out it computes them, other than those of large TCP segments.
func (l *link) Capabilities() stack.LinkEndpointCapabilities { return 0 }

// Close ends the waits of WritePackets.
func (l *link) Close() { l.drops.add(DropClosed, l.queue.close()) }

// Wait has nothing to wait for: the link has no goroutines.
func (l *link) Wait() {}

// The rest is about link-layer headers and addresses, of which there are none.

func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) SetOnCloseAction(func())                 {}
