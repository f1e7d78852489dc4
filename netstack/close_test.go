package netstack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What waits when the stack is closed ends at once with an error that says "closed".
func TestCloseEndsEveryWait(t *testing.T) {
	nowhere := netip.MustParseAddr("10.99.0.77")
	waits := map[string]func(s *Stack) error{
		"Read": func(s *Stack) error {
			_, err := s.Read([][]byte{make([]byte, 2000)}, []int{0}, 0)
			for err == nil {
				_, err = s.Read([][]byte{make([]byte, 2000)}, []int{0}, 0)
			}
			return err
		},
		"dial": func(s *Stack) error {
			_, err := s.DialTCP(context.Background(), netip.AddrPort{}, at(nowhere, 1))
			return err
		},
		"accept": func(s *Stack) error {
			l, err := s.ListenTCP(at(addrA4, 81))
			if err == nil {
				_, err = l.Accept()
			}
			return err
		},
		"TCP read": func(s *Stack) error {
			_, far, err := inside(s, 82)
			if err == nil {
				_, err = far.Read(make([]byte, 1))
			}
			return err
		},
		"TCP write": func(s *Stack) error {
			near, _, err := inside(s, 83)
			for err == nil {
				_, err = near.Write(make([]byte, 1<<20))
			}
			return err
		},
		"UDP read": func(s *Stack) error {
			c, err := s.ListenUDP(at(addrA4, 84))
			if err == nil {
				_, _, err = c.ReadFrom(make([]byte, 1))
			}
			return err
		},
		"UDP write into a full queue": func(s *Stack) error {
			c, err := s.DialUDP(netip.AddrPort{}, at(nowhere, 84))
			for err == nil {
				_, err = c.Write(make([]byte, 60000))
			}
			return err
		},
		"ping": func(s *Stack) error {
			_, err := s.Ping(context.Background(), nowhere)
			return err
		},
	}
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6), QueueLength: 4})
	results := make(map[string]chan error)
	for name, wait := range waits {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- wait(s) }()
	}
	waitFor(t, "gVisor's senders and our reader", func() bool { return s.Stats().SentPackets > 0 })
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() { s.Close() })
	}
	closers.Wait()
	for name, result := range results {
		if err := <-result; !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s ended with %v", name, err)
		}
	}
}

// inside makes a connection from the stack to itself.
func inside(s *Stack, port uint16) (near, far *TCPConn, err error) {
	l, err := s.ListenTCP(at(addrA4, port))
	if err != nil {
		return nil, nil, err
	}
	near, err = s.DialTCP(context.Background(), netip.AddrPort{}, at(addrA4, port))
	if err != nil {
		return nil, nil, err
	}
	far, err = l.AcceptTCP()
	return near, far, err
}

func TestEverythingAfterCloseSaysClosed(t *testing.T) {
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4)})
	s.Close()
	_, dial := s.DialTCP(context.Background(), netip.AddrPort{}, at(addrA4, 1))
	_, udp := s.DialUDP(netip.AddrPort{}, at(addrA4, 1))
	_, listen := s.ListenTCP(at(addrA4, 1))
	_, ping := s.Ping(context.Background(), addrA4)
	_, write := s.Write([][]byte{{0x45}}, 0)
	for name, err := range map[string]error{
		"dial": dial, "udp": udp, "listen": listen, "ping": ping, "write": write,
		"addresses": s.SetAddresses(prefixes(addrB4)), "mtu": s.SetMTU(1300),
	} {
		if !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	<-s.Events() // up
	if _, open := <-s.Events(); open {
		t.Error("the channel of events is still open")
	}
}

func TestClosedConnectionsSayClosed(t *testing.T) {
	a, b := wiredStacks(t)
	near, far := connected(t, a, b, at(addrB4, 80))
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	_, read := near.Read(make([]byte, 1))
	_, write := near.Write(make([]byte, 1))
	for name, err := range map[string]error{
		"read": read, "write": write, "close": near.Close(), "half-close": near.CloseWrite(), "deadline": near.SetDeadline(testTime),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the far side reads %d, %v, want the end", n, err)
	}
	l, err := b.ListenTCP(at(addrB4, 90))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

func TestLingerZeroResets(t *testing.T) {
	a, b := wiredStacks(t)
	near, far := connected(t, a, b, at(addrB4, 80))
	near.SetLinger(0)
	near.Close()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

// Under traffic, dials, changes of addresses and of the MTU, Close may come at any moment.
func TestCloseDuringEverything(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		closeDuringEverything(t)
	}
}

func closeDuringEverything(t *testing.T) {
	a := newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6), QueueLength: 16})
	b := newTestStack(t, StackOptions{Addresses: prefixes(addrB4, addrB6)})
	ended := make(chan struct{}, 2)
	go carry(a, b, ended)
	go carry(b, a, ended)
	l, err := b.ListenTCP(at(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() { sink(l, &group) })
	started := make(chan struct{}, 8)
	for range 4 {
		group.Go(func() { pour(a, at(addrB4, 80), started) })
	}
	group.Go(func() { churn(a, started) })
	group.Go(func() {
		for {
			if _, err := a.Ping(context.Background(), addrB6); err != nil {
				return
			}
		}
	})
	for range 3 {
		<-started
	}
	group.Go(func() { b.Close() })
	a.Close()
	a.Close()
	group.Wait()
	<-ended
	<-ended
}

func sink(l net.Listener, group *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		group.Go(func() { io.Copy(io.Discard, c); c.Close() })
	}
}

// pour makes connection after connection and writes into each until the stack is closed.
func pour(s *Stack, to netip.AddrPort, started chan<- struct{}) {
	for i := 0; ; i++ {
		c, err := s.DialTCP(context.Background(), netip.AddrPort{}, to)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		_, err = c.Write(make([]byte, 256<<10))
		c.Close()
		if i == 0 {
			started <- struct{}{}
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

func churn(s *Stack, started chan<- struct{}) {
	extra := netip.MustParseAddr("10.99.5.5")
	for i := 0; ; i++ {
		addrs := prefixes(addrA4, addrA6, extra)
		if s.SetAddresses(addrs[:2+i%2]) != nil || s.SetMTU(1300+i%100) != nil {
			return
		}
		if i == 0 {
			started <- struct{}{}
		}
	}
}

func TestHundredStacksOpenAndClose(t *testing.T) {
	before := runtime.NumGoroutine()
	stacks := make([]*Stack, 100)
	for i := range stacks {
		stacks[i] = newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6)})
		if _, _, err := inside(stacks[i], 80); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for _, s := range stacks {
		group.Go(func() { s.Close() })
	}
	group.Wait()
	waitFor(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// A closed stack keeps nothing alive: not by timers, not by gVisor's list of dangling
// endpoints.
func TestCloseReturnsMemory(t *testing.T) {
	collected := make(chan struct{})
	func() {
		s, err := NewStack(StackOptions{Addresses: prefixes(addrA4)})
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(s.ip, func(c chan struct{}) { close(c) }, collected)
		near, far, err := inside(s, 80)
		if err != nil {
			t.Fatal(err)
		}
		near.Close()
		far.Close()
		open, _, err := inside(s, 81)
		if err != nil {
			t.Fatal(err)
		}
		open.SetDeadline(testTime)
		s.Close()
		open.Close()
	}()
	waitFor(t, "the stack to be collected", func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
}

// testTime is a deadline that no test reaches.
var testTime = time.Now().Add(time.Hour)
