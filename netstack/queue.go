package netstack

import (
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// queue is the bounded way out of the stack: gVisor's senders put packets in, the one
// reader (WireGuard) takes them out in batches. Who puts into a full queue waits.
//
// Waiting is safe because the two ends never wait for each other in a circle. A sender
// holds locks of its connection while it waits, sometimes on the goroutine that is inside
// Stack.Write (the answer to an echo request). What lets it go on is pop, and pop takes no
// lock but this queue's. Its caller, WireGuard's reader, encrypts and sends, and waits at
// most for the UDP socket, never for a packet to be received: with no session it stages
// packets, the oldest making room. So Read never depends on Write, however long Write
// waits for Read. What is released after a pop takes a socket's send-buffer lock for a
// moment, which no sender holds while it waits here.
//
// A ring under a mutex beats a channel here: a batch is one lock, not one per packet.
type queue struct {
	mu       sync.Mutex
	readable sync.Cond // the reader waits here while the ring is empty
	writable sync.Cond // writers wait here while the queue is full
	writers  int       // how many writers wait
	ring     []outbound
	head     int // index of the oldest entry
	count    int // entries in the ring
	packets  int // packets on the wire that the entries stand for
	closed   bool
}

// outbound is an entry of the queue: one packet, or a large TCP segment that is cut into
// several when it is read. The queue is full when the packets on the wire are as many as
// its length, so that offload makes it no larger in bytes.
type outbound struct {
	pkt     *stack.PacketBuffer
	packets int // 1 or more
}

func newQueue(length int) *queue {
	q := &queue{ring: make([]outbound, length)}
	q.readable.L = &q.mu
	q.writable.L = &q.mu
	return q
}

// push puts pkt in, waiting for room, and takes a reference of its own. It reports false
// when the queue is closed.
func (q *queue) push(pkt *stack.PacketBuffer, packets int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.packets >= len(q.ring) && !q.closed {
		q.writers++
		q.writable.Wait()
		q.writers--
	}
	if q.closed {
		return false
	}
	q.ring[(q.head+q.count)%len(q.ring)] = outbound{pkt.IncRef(), packets}
	q.count++
	q.packets += packets
	if q.count == 1 {
		q.readable.Signal()
	}
	return true
}

// pop moves entries, with their references, into dst: until dst is full or they stand for
// as many packets as are wanted. It waits for the first one, and returns 0 when the queue
// is closed.
func (q *queue) pop(dst []outbound, packets int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.count == 0 && !q.closed {
		q.readable.Wait()
	}
	return q.take(dst, packets)
}

// take is pop for who holds the lock; it never waits.
func (q *queue) take(dst []outbound, packets int) (n int) {
	for n < len(dst) && q.count > 0 && packets > 0 {
		dst[n], q.ring[q.head] = q.ring[q.head], outbound{}
		q.head = (q.head + 1) % len(q.ring)
		q.count--
		q.packets -= dst[n].packets
		packets -= dst[n].packets
		n++
	}
	for range min(n, q.writers) {
		q.writable.Signal()
	}
	return n
}

// len is how many packets wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.packets
}

// close ends every wait and returns how many packets were still queued; they are released.
func (q *queue) close() int {
	q.mu.Lock()
	q.closed = true
	lost := q.packets
	rest := make([]outbound, q.count)
	q.take(rest, q.packets)
	q.readable.Broadcast()
	q.writable.Broadcast()
	q.mu.Unlock()
	for _, o := range rest {
		o.pkt.DecRef()
	}
	return lost
}
