package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ErrIdle is what Relay returns when nothing moved for IdleTimeout.
var ErrIdle = errors.New("idle for too long")

// The usual LingerTimeout and HalfClosedTimeout.
const (
	lingerTime     = 2 * time.Second
	halfClosedTime = time.Hour
)

// RelayOptions are the choices of a Relay. The zero value is good.
type RelayOptions struct {
	// IdleTimeout resets both sides when no byte moves in either direction for this long.
	// 0: never. A side that does not read counts as idle when it holds up the other.
	IdleTimeout time.Duration
	// HalfClosedTimeout is IdleTimeout for a flow of which one direction has ended. A side that
	// has gone for good looks like one that has only ended its sending, until something is
	// sent to it; this bounds the wait. 0: 1 hour; negative: never.
	HalfClosedTimeout time.Duration
	// LingerTimeout is how long a side that goes on sending is heard out after the other side
	// has closed, so that the last bytes for it are not overtaken by its reset. 0: 2 s.
	LingerTimeout time.Duration
	// Buffers lends the memory. nil: buffers of its own.
	Buffers *Buffers
}

// Traffic is how many bytes a Relay wrote.
type Traffic struct{ AToB, BToA int64 }

// Relay copies between a and b in both directions until both have ended, and closes both.
// Nothing of it runs on after it returns.
//
//   - The end of what a sends is passed to b by CloseWrite, and b may go on sending for as
//     long as it likes; and the other way round. To a side without CloseWrite the end is not
//     passed on.
//   - A connection that breaks or is reset resets the other (see Abort).
//   - When b has closed while a still sends, a gets all that b sent before its own bytes are
//     answered with a reset.
//   - When ctx ends or nothing moves for IdleTimeout, both are reset.
//
// The error is nil when both directions ended in order; otherwise ErrIdle, the cause of ctx,
// or the error of the connection that broke first.
func Relay(ctx context.Context, a, b net.Conn, o RelayOptions) (Traffic, error) {
	defaultTo(&o.LingerTimeout, lingerTime)
	if o.Buffers == nil {
		o.Buffers = new(Buffers)
	}
	defaultTo(&o.HalfClosedTimeout, halfClosedTime)
	r := &relay{a: a, b: b, o: o}
	stop := context.AfterFunc(ctx, func() { r.abort(context.Cause(ctx)) })
	defer stop()
	r.idle = startIdle(o.IdleTimeout, func() { r.abort(ErrIdle) })
	defer r.idle.stop()
	defer func() { r.halfIdle.Load().stop() }()

	var t Traffic
	var left, right halfEnd
	var wg sync.WaitGroup
	wg.Go(func() { t.AToB, left = r.half(b, a) })
	t.BToA, right = r.half(a, b)
	wg.Wait()
	r.hearOut(a, left)
	r.hearOut(b, right)
	return t, r.finish()
}

// relay is one Relay as it runs.
type relay struct {
	a, b     net.Conn
	o        RelayOptions
	idle     *idleTimer
	halfIdle atomic.Pointer[idleTimer] // set once one direction has ended

	end   sync.Once // closes both, in order or not
	cause error     // why not in order; written inside end
}

// halfEnd is how one direction ended, when it is not for the other one too.
type halfEnd struct{ unsent error } // not nil: the receiving side would take no more

// half copies from src to dst until src ends.
func (r *relay) half(dst, src net.Conn) (int64, halfEnd) {
	n, readErr, writeErr := r.copy(dst, src)
	switch {
	case writeErr != nil:
		// dst is gone, or does not want more. Reading from it tells which, and what it said
		// before is still to be delivered: the other direction decides.
		return n, halfEnd{unsent: writeErr}
	case readErr != io.EOF:
		r.abort(readErr)
	default:
		// An error here is found by the other direction.
		CloseWrite(dst)
		r.watchHalf()
	}
	return n, halfEnd{}
}

// watchHalf watches what is left of a flow when the first of its directions has ended.
func (r *relay) watchHalf() {
	t := startIdle(r.o.HalfClosedTimeout, func() { r.abort(ErrIdle) })
	if !r.halfIdle.CompareAndSwap(nil, t) {
		t.stop()
	}
}

func (r *relay) touch() {
	r.idle.touch()
	r.halfIdle.Load().touch()
}

// copy moves bytes until one side fails or src ends with io.EOF.
func (r *relay) copy(dst io.Writer, src io.Reader) (total int64, readErr, writeErr error) {
	buf := r.o.Buffers.get(smallBuffer)
	defer func() { r.o.Buffers.put(buf) }()
	for {
		n, err := src.Read(buf)
		if n > 0 {
			r.touch()
			m, werr := dst.Write(buf[:n])
			r.touch()
			if total += int64(m); werr != nil {
				return total, nil, werr
			}
		}
		if err != nil {
			return total, err, nil
		}
		buf = r.o.Buffers.next(buf, n)
	}
}

// hearOut throws away what src goes on sending although the other side has closed, for a
// while, and then resets it.
func (r *relay) hearOut(src net.Conn, end halfEnd) {
	if end.unsent == nil {
		return
	}
	src.SetReadDeadline(time.Now().Add(r.o.LingerTimeout))
	buf := r.o.Buffers.get(smallBuffer)
	defer r.o.Buffers.put(buf)
	for {
		if _, err := src.Read(buf); err == io.EOF {
			break // it has ended too: nothing is left to reset
		} else if err != nil {
			r.abort(end.unsent)
			return
		}
	}
	r.end.Do(func() { r.cause = end.unsent; r.close() })
}

func (r *relay) abort(cause error) {
	r.end.Do(func() {
		r.cause = cause
		Abort(r.a)
		Abort(r.b)
	})
}

// finish closes both in order unless they are closed already. It waits for an abort that is
// under way.
func (r *relay) finish() error {
	r.end.Do(r.close)
	return r.cause
}

func (r *relay) close() {
	r.a.Close()
	r.b.Close()
}
