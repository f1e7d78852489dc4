package gateway

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// door is a listener or a UDP socket that is opened again, in the same place, when it dies.
// Any goroutine may use it.
type door[T io.Closer] struct {
	reopen func() (T, error)
	log    zerolog.Logger

	mu      sync.Mutex
	at      T
	problem *Problem // nil: it is open
}

func (d *door[T]) now() T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// close closes what is open. A gate or a server on it must be closed before.
func (d *door[T]) close() { d.now().Close() }

// trouble returns what is wrong, or nil.
func (d *door[T]) trouble() *Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problem
}

// mend opens the door anew, and tries until that is done or quit is closed.
func (d *door[T]) mend(cause error, quit <-chan struct{}) (mended bool) {
	const shortest, longest = 100 * time.Millisecond, 30 * time.Second
	d.fail(cause)
	d.log.Warn().Err(cause).Msg("listener has died and is opened again")
	for pause := shortest; !d.again(); pause = min(2*pause, longest) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-quit:
			timer.Stop()
			return false
		}
	}
	d.log.Info().Msg("listener is open again")
	return true
}

func (d *door[T]) fail(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problem = &Problem{Since: time.Now(), Reason: cause.Error()}
	d.at.Close()
}

// again tries once.
func (d *door[T]) again() bool {
	at, err := d.reopen()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		since := time.Now()
		if d.problem != nil {
			since = d.problem.Since
		}
		d.problem = &Problem{Since: since, Reason: err.Error()}
		return false
	}
	d.at, d.problem = at, nil
	return true
}

// gate lends a listener to one server after another: its Close ends Accept and leaves the
// listener open, with the connections that wait in it, for the next gate. At any time at
// most one gate of a door is open.
type gate struct {
	door      *door[net.Listener]
	once      sync.Once
	closed    chan struct{}
	accepting sync.Mutex
}

// deadliner is a listener whose Accept can be ended without closing it, as those of TCP, of
// unix sockets and of netstack.
type deadliner interface{ SetDeadline(time.Time) error }

func lend(d *door[net.Listener]) *gate {
	if ln, ok := d.now().(deadliner); ok {
		ln.SetDeadline(time.Time{}) // fails on a dead listener, as Accept will
	}
	return &gate{door: d, closed: make(chan struct{})}
}

// Addr returns where the listener is open.
func (g *gate) Addr() net.Addr { return g.door.now().Addr() }

func (g *gate) shut() bool {
	select {
	case <-g.closed:
		return true
	default:
		return false
	}
}

// Accept returns net.ErrClosed once the gate is closed. A connection that came just before
// is still handed over, for nobody else would take it. What the server can wait out, such as
// a lack of file descriptors, is handed to it; after any other error the listener is opened
// anew.
func (g *gate) Accept() (net.Conn, error) {
	g.accepting.Lock()
	defer g.accepting.Unlock()
	for !g.shut() {
		conn, err := g.door.now().Accept()
		switch {
		case err == nil || passes(err):
			return conn, err
		case !g.shut():
			g.door.mend(err, g.closed)
		}
	}
	return nil, net.ErrClosed
}

// passes reports whether an error of Accept leaves the listener whole.
func passes(err error) bool {
	for _, number := range []syscall.Errno{
		syscall.ECONNABORTED, syscall.EINTR, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, number) {
			return true
		}
	}
	return false
}

// Close ends the gate, and returns once no Accept is under way.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	ln := g.door.now()
	if d, ok := ln.(deadliner); !ok || d.SetDeadline(time.Unix(1, 0)) != nil {
		ln.Close()
	}
	g.accepting.Lock()
	defer g.accepting.Unlock()
	return nil
}
