package netstack

import (
	"os"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// reader is the state of Stack.Read from one call to the next.
type reader struct {
	mu    sync.Mutex // one Read at a time
	batch [batchSize]*stack.PacketBuffer
}

type traffic struct{ packets, bytes atomic.Uint64 }

func (t *traffic) add(packets, bytes int) {
	t.packets.Add(uint64(packets))
	t.bytes.Add(uint64(bytes))
}

// Read fills bufs, each from offset on, with packets that leave for the tunnel, and sizes
// with their lengths, as tun.Device asks. It waits for the first packet only. After Close
// it returns os.ErrClosed.
func (s *Stack) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	r := &s.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(bufs) == 0 {
		return 0, nil
	}
	for {
		n := s.link.queue.pop(r.batch[:min(len(bufs), len(r.batch))])
		if n == 0 {
			return 0, os.ErrClosed
		}
		if filled := s.fill(bufs, sizes, offset, r.batch[:n]); filled > 0 {
			return filled, nil
		}
	}
}

// fill copies the packets out and releases them.
func (s *Stack) fill(bufs [][]byte, sizes []int, offset int, pkts []*stack.PacketBuffer) (filled int) {
	bytes := 0
	for i, pkt := range pkts {
		if size := pkt.Size(); size > len(bufs[filled])-offset {
			s.drops.add(DropTooBig, 1)
		} else {
			copyPacket(bufs[filled][offset:], pkt)
			sizes[filled] = size
			bytes += size
			filled++
		}
		pkt.DecRef()
		pkts[i] = nil
	}
	s.sent.add(filled, bytes)
	return filled
}

// copyPacket writes headers and payload of pkt, which lie in several views, into dst.
func copyPacket(dst []byte, pkt *stack.PacketBuffer) {
	views, skip := pkt.AsViewList()
	for v := views.Front(); v != nil; v = v.Next() {
		part := v.AsSlice()
		if skip >= len(part) {
			skip -= len(part)
			continue
		}
		dst = dst[copy(dst, part[skip:]):]
		skip = 0
	}
}

// Write hands packets that came out of the tunnel, each from offset on, to the stack, as
// tun.Device asks. It copies them. What the stack cannot use is counted (see Stats) and is
// no error: one bad packet must not cost the others of its batch. After Close it returns
// os.ErrClosed.
//
// An answer that the stack sends from within, such as an echo reply, may wait for room in
// the outbound queue.
func (s *Stack) Write(bufs [][]byte, offset int) (int, error) {
	if s.isClosed() {
		return 0, os.ErrClosed
	}
	bytes := 0
	for _, buf := range bufs {
		packet := buf[offset:]
		bytes += len(packet)
		proto, ok := protocolOf(packet)
		if !ok {
			s.drops.add(DropBadPacket, 1)
			continue
		}
		s.link.deliver(proto, stack.NewPacketBuffer(stack.PacketBufferOptions{
			Payload: buffer.MakeWithView(buffer.NewViewWithData(packet)),
		}))
	}
	s.received.add(len(bufs), bytes)
	return len(bufs), nil
}

func protocolOf(packet []byte) (tcpip.NetworkProtocolNumber, bool) {
	if len(packet) == 0 {
		return 0, false
	}
	switch packet[0] >> 4 {
	case 4:
		return ipv4.ProtocolNumber, true
	case 6:
		return ipv6.ProtocolNumber, true
	}
	return 0, false
}
