package proxy

import (
	"bytes"
	"sync/atomic"
)

// lengthSeen notes whether a client has ever written Content-Length. net/http hides it in a
// request that is chunked as well, after which the connection must be closed. Where it was
// written is not told apart: it costs such a client no more than a new connection.
type lengthSeen struct {
	seen atomic.Bool
	tail []byte // the last bytes of what came before, in which the name may have begun
}

var contentLength = []byte("content-length")

// look is called by one reader at a time.
func (l *lengthSeen) look(b []byte) {
	if l.seen.Load() {
		return
	}
	most := len(contentLength) - 1
	if edge := append(l.tail, b[:min(len(b), most)]...); namesLength(edge) || namesLength(b) {
		l.seen.Store(true)
		return
	}
	l.tail = append(l.tail, b[max(0, len(b)-most):]...)
	l.tail = append(l.tail[:0], l.tail[max(0, len(l.tail)-most):]...)
}

// namesLength looks for the dash, which is rare and found fast.
func namesLength(b []byte) bool {
	const before = len("content")
	for at := 0; ; at++ {
		i := bytes.IndexByte(b[at:], '-')
		if i < 0 {
			return false
		}
		at += i
		if from := at - before; from >= 0 && from+len(contentLength) <= len(b) && bytes.EqualFold(b[from:from+len(contentLength)], contentLength) {
			return true
		}
	}
}
