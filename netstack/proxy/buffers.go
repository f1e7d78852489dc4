package proxy

import "sync"

const (
	// smallBuffer is what an idle direction of a flow holds while it waits.
	smallBuffer = 4 << 10
	// largeBuffer is what a busy one moves at once, and the room for any UDP datagram.
	largeBuffer = 64 << 10
)

// Buffers lends memory to flows and gets it back. The zero value is ready; one may be shared
// by many flows and servers.
type Buffers struct{ small, large sync.Pool }

// get returns a buffer of one of the two sizes, with room for n bytes where n is at most
// largeBuffer.
func (p *Buffers) get(n int) []byte {
	if n <= smallBuffer {
		if b, ok := p.small.Get().(*[smallBuffer]byte); ok {
			return b[:]
		}
		return make([]byte, smallBuffer)
	}
	if b, ok := p.large.Get().(*[largeBuffer]byte); ok {
		return b[:]
	}
	return make([]byte, largeBuffer)
}

// put takes back what get returned, in any length.
func (p *Buffers) put(b []byte) {
	switch cap(b) {
	case smallBuffer:
		p.small.Put((*[smallBuffer]byte)(b[:smallBuffer]))
	case largeBuffer:
		p.large.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}

// next returns the buffer for the next read, after one that filled n bytes of b: a full
// small buffer says that more is coming, and a large one that is hardly used is better lent
// to another flow.
func (p *Buffers) next(b []byte, n int) []byte {
	want := smallBuffer
	if n >= smallBuffer {
		want = largeBuffer
	}
	if len(b) == want {
		return b
	}
	p.put(b)
	return p.get(want)
}
