//go:build linux

package agents

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stillwire/stillwire/test/netns"
)

// wire carries TCP connections from a machine to the API server, and has faults on demand.
type wire struct {
	to string

	mu    sync.Mutex
	ln    net.Listener
	links map[*link]bool
	work  sync.WaitGroup
}

// link is one connection through the wire.
type link struct {
	ends   [2]net.Conn
	frozen chan struct{} // closed: nothing is carried any more, and nobody is told
	once   sync.Once
}

// newWire listens in the machine where the API server seems to be.
func newWire(t *testing.T, n *netns.Namespace, at, to string) *wire {
	t.Helper()
	w := &wire{to: to, links: make(map[*link]bool)}
	if err := n.Do(func() (err error) {
		w.ln, err = net.Listen("tcp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.work.Go(w.accept)
	t.Cleanup(func() {
		w.ln.Close()
		w.cut()
		w.work.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		c, err := w.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.to)
		if err != nil {
			c.Close()
			continue
		}
		l := &link{ends: [2]net.Conn{c, server}, frozen: make(chan struct{})}
		w.mu.Lock()
		w.links[l] = true
		w.mu.Unlock()
		w.work.Go(func() { w.carry(l, 0) })
		w.work.Go(func() { w.carry(l, 1) })
	}
}

// carry copies one way until an end is closed.
func (w *wire) carry(l *link, from int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.ends[from].Read(buf)
		select {
		case <-l.frozen: // read on, so that the end sees its packets taken
			if err == nil {
				continue
			}
		default:
		}
		if err == nil {
			_, err = l.ends[1-from].Write(buf[:n])
		}
		if err != nil {
			if errors.Is(err, io.EOF) || !errors.Is(err, net.ErrClosed) {
				l.close()
			}
			w.mu.Lock()
			delete(w.links, l)
			w.mu.Unlock()
			return
		}
	}
}

func (l *link) close() {
	l.ends[0].Close()
	l.ends[1].Close()
}

func (w *wire) each(f func(*link)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		f(l)
	}
}

// cut ends all connections.
func (w *wire) cut() { w.each((*link).close) }

// freeze has all connections carry nothing more, as behind a firewall that forgot them. New ones
// are carried.
func (w *wire) freeze() { w.each(func(l *link) { l.once.Do(func() { close(l.frozen) }) }) }
