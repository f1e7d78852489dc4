package netstack

import (
	"os"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
)

// reader is the state of Stack.Read from one call to the next.
type reader struct {
	mu      sync.Mutex // one Read at a time
	batch   [batchSize]outbound
	waiting []outbound // part of batch: popped, not begun
	current segmenter  // begun
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
	for !s.isClosed() {
		if len(r.waiting) == 0 && !r.current.active() {
			r.waiting = r.batch[:s.link.queue.pop(r.batch[:], len(bufs))]
		}
		if n := s.fill(bufs, sizes, offset); n > 0 {
			return n, nil
		}
	}
	return 0, os.ErrClosed
}

// fill copies packets out until the buffers are full or nothing waits.
func (s *Stack) fill(bufs [][]byte, sizes []int, offset int) (n int) {
	bytes := 0
	for n < len(bufs) && s.reader.advance(int(s.link.MTU())) {
		size := s.reader.current.next(bufs[n][offset:])
		if size == 0 {
			s.drops.add(DropTooBig, 1)
			continue
		}
		sizes[n] = size
		bytes += size
		n++
	}
	s.sent.add(n, bytes)
	return n
}

// advance makes sure that a packet is begun, and reports false when there is none.
func (r *reader) advance(mtu int) bool {
	if r.current.active() {
		return true
	}
	if len(r.waiting) == 0 {
		return false
	}
	r.current.start(r.waiting[0].pkt, mtu)
	r.waiting[0] = outbound{}
	r.waiting = r.waiting[1:]
	return true
}

// release lets go what was popped and not given out. It returns how many that were.
func (r *reader) release() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.advance(DefaultMTU) {
		r.current.release()
		n++
	}
	return n
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
	c := s.coalescers.get(s.link.deliver)
	bytes := 0
	for _, buf := range bufs {
		packet := buf[offset:]
		bytes += len(packet)
		if proto, ok := protocolOf(packet); ok {
			c.add(proto, packet)
		} else {
			s.drops.add(DropBadPacket, 1)
		}
	}
	c.flush()
	s.coalescers.put(c)
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
