package gateway

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// newDoor opens a TCP listener on loopback as a door.
func newDoor(t *testing.T) *door[net.Listener] {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	addr := ln.Addr().String()
	d := &door[net.Listener]{at: ln, reopen: func() (net.Listener, error) { return net.Listen("tcp", addr) }}
	t.Cleanup(d.close)
	return d
}

// accept takes one connection in the background.
func accept(g *gate) <-chan error {
	out := make(chan error, 1)
	go func() {
		conn, err := g.Accept()
		if err == nil {
			conn.Close()
		}
		out <- err
	}()
	return out
}

func dial(t *testing.T, addr net.Addr) {
	t.Helper()
	conn, err := net.Dial(addr.Network(), addr.String())
	mustDo(t, err)
	conn.Close()
}

func TestGateHandsTheListenerToTheNextOne(t *testing.T) {
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	mustDo(t, err)
	for name, d := range map[string]*door[net.Listener]{"tcp": newDoor(t), "unix": {at: unix}} {
		t.Run(name, func(t *testing.T) {
			first := lend(d)
			waiting := accept(first)
			mustDo(t, first.Close(), first.Close())
			if err := <-waiting; !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept under way: %v, want net.ErrClosed", err)
			}
			dial(t, d.now().Addr()) // waits in the listener's queue
			if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept of a closed gate: %v, want net.ErrClosed", err)
			}
			second := lend(d)
			if err := <-accept(second); err != nil {
				t.Errorf("next gate: %v", err)
			}
			second.Close()
		})
	}
}

func TestListenerThatDiesIsOpenedAgainInItsPlace(t *testing.T) {
	d := newDoor(t)
	addr := d.now().Addr()
	g := lend(d)
	got := accept(g)
	d.now().Close() // as if by another hand
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.Dial("tcp", addr.String())
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	g.Close()
}

func TestMendingEndsWithTheGate(t *testing.T) {
	d := newDoor(t)
	tried := make(chan struct{}, 100)
	d.reopen = func() (net.Listener, error) { tried <- struct{}{}; return nil, errors.New("taken by another") }
	g := lend(d)
	got := accept(g)
	d.now().Close()
	<-tried
	<-tried
	if p := d.trouble(); p == nil || p.Reason != "taken by another" {
		t.Errorf("trouble %+v", p)
	}
	g.Close()
	if err := <-got; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want net.ErrClosed", err)
	}
}

// Many gates of one listener, one after another, under clients: none is lost or refused.
func TestNoConnectionIsLostBetweenGates(t *testing.T) {
	const clients, gates = 200, 50
	d := newDoor(t)
	var wg sync.WaitGroup
	served := make(chan struct{}, clients)
	swap := make(chan struct{})
	wg.Go(func() {
		defer close(swap)
		for range gates {
			g := lend(d)
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					conn, err := g.Accept()
					if err != nil {
						return
					}
					conn.Close()
					served <- struct{}{}
				}
			})
			dial(t, d.now().Addr())
			g.Close()
			serving.Wait()
		}
	})
	for range clients - gates {
		dial(t, d.now().Addr())
	}
	<-swap
	last := lend(d)
	for len(served) < clients {
		conn, err := last.Accept()
		mustDo(t, err)
		conn.Close()
		served <- struct{}{}
	}
	last.Close()
	wg.Wait()
}
