//go:build linux

package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
	"github.com/stillwire/stillwire/test/interop/talk"
	"github.com/stillwire/stillwire/test/netns"
)

// Two stacks, no TUN and no root:
//
//	near                                      far
//	netstack.Net                              upstream's device, Bind and tun/netstack
//	10.9.0.1  fd09::1                         10.9.0.2  fd09::2
//	 │                                         │
//	127.0.0.1:port ─────────────────────────── 127.0.0.1:port
//
// Both serve HTTP and echo UDP. Far has a process of its own, the program in the folder end,
// because upstream's Close panics when something is still being sent. Near is in the test's,
// with its race detector, or also in one of its own where there is much to carry.

// openArgs and talkArgs are OpenArgs and TalkArgs of that program: gob goes by field names.
type openArgs struct {
	Stillwire bool
	Config    string
}

type talkArgs struct {
	Host        netip.Addr
	Bytes       int64
	Count, Size int
}

func startEnd(t *testing.T) *child {
	t.Helper()
	program, err := buildEnd()
	if err != nil {
		t.Fatal(err)
	}
	return startChild(t, "End", exec.Command(program), func(cmd *exec.Cmd) *netns.Process { return netns.Start(t, cmd) })
}

// stackFile are an end's configuration and addresses; port 0 of the peer is no endpoint.
func stackFile(key device.PrivateKey, peer device.PublicKey, port uint16, addrs, peerAddrs []netip.Addr) *device.File {
	p := device.PeerConfig{PublicKey: peer, AllowedIPs: hosts(peerAddrs...)}
	if port != 0 {
		p.Endpoint = endpoint(netip.MustParseAddr("127.0.0.1"), port)
	}
	return &device.File{Config: device.Config{PrivateKey: key, Peers: []device.PeerConfig{p}}, Addresses: hosts(addrs...), MTU: mtu}
}

// stacks are near and far. Near has not been told where far is: far speaks first.
type stacks struct {
	near  *netstack.Net
	stack talk.Stack // of near
	stop  func()     // near's services
	far   *child
}

func newStacks(t *testing.T) *stacks {
	t.Helper()
	key, farKey := newKey(t), newKey(t)
	near, err := netstack.Open(netstack.FromFile(stackFile(key, farKey.Public(), 0, []netip.Addr{near4, near6}, []netip.Addr{far4, far6})))
	if err != nil {
		t.Fatal(err)
	}
	s := &stacks{near: near, stack: talk.Stillwire(near), stop: func() {}}
	t.Cleanup(s.close)
	if s.stop, err = talk.Serve(s.stack); err != nil {
		t.Fatal(err)
	}
	state, err := near.State()
	if err != nil {
		t.Fatal(err)
	}
	s.far = startEnd(t)
	openFar(s.far, farKey, key.Public(), state.ListenPort)
	return s
}

func (s *stacks) close() {
	s.near.Close()
	s.stop()
}

func openFar(far *child, key device.PrivateKey, near device.PublicKey, port uint16) {
	far.t.Helper()
	f := stackFile(key, near, port, []netip.Addr{far4, far6}, []netip.Addr{near4, near6})
	var own uint16
	far.call("Open", openArgs{Config: string(f.Format())}, &own)
	far.call("Ping", talkArgs{Host: near4}, &Nothing{})
}

func TestUpstreamNetstackTalksBothWays(t *testing.T) {
	s := newStacks(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const size = 4 << 20
	for _, tt := range []struct {
		family    string
		near, far netip.Addr
	}{
		{"IPv4", near4, far4},
		{"IPv6", near6, far6},
	} {
		ask := func(method string, a talkArgs) error {
			a.Host = tt.near
			return s.far.try(method, a, &Nothing{})
		}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"near pings far", func() error { return s.stack.Ping(ctx, tt.far) }},
			{"far pings near", func() error { return ask("Ping", talkArgs{}) }},
			{"near downloads from far", func() error { return s.stack.Download(ctx, tt.far, size) }},
			{"far downloads from near", func() error { return ask("Download", talkArgs{Bytes: size}) }},
			{"near uploads to far", func() error { return s.stack.Upload(ctx, tt.far, size) }},
			{"far uploads to near", func() error { return ask("Upload", talkArgs{Bytes: size}) }},
		} {
			t.Run(tt.family+", "+step.name, func(t *testing.T) {
				if err := step.do(); err != nil {
					t.Error(err)
				}
			})
		}
		for _, size := range []int{0, 1, 1300, 1392, 8000} { // the last in fragments
			t.Run(fmt.Sprintf("%s, UDP of %d bytes", tt.family, size), func(t *testing.T) {
				if err := s.stack.Echo(ctx, tt.far, 50, size); err != nil {
					t.Errorf("near to far and back: %v", err)
				}
				if err := ask("Echo", talkArgs{Count: 50, Size: size}); err != nil {
					t.Errorf("far to near and back: %v", err)
				}
			})
		}
	}
	if t.Failed() {
		t.Logf("near's counters: %+v", s.near.Stack().Stats())
	}
}

func TestUpstreamNetstackCarriesMuchBothWays(t *testing.T) {
	near, far := startEnd(t), startEnd(t)
	key, farKey := newKey(t), newKey(t)
	var port uint16
	near.call("Open", openArgs{true, string(stackFile(key, farKey.Public(), 0, []netip.Addr{near4, near6}, []netip.Addr{far4, far6}).Format())}, &port)
	openFar(far, farKey, key.Public(), port)
	const size = 64 << 20
	for _, tt := range []struct {
		name string
		by   *child
		from netip.Addr
		how  string
	}{
		{"near downloads from far", near, far4, "Download"},
		{"far downloads from near", far, near4, "Download"},
		{"near uploads to far", near, far6, "Upload"},
		{"far uploads to near", far, near6, "Upload"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begun := time.Now()
			if err := tt.by.try(tt.how, talkArgs{Host: tt.from, Bytes: size}, &Nothing{}); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d MiB in %v", size>>20, time.Since(begun).Round(time.Millisecond))
		})
	}
}

// Everything is under way when the end comes: near, far and near's connections end in every
// order, and at once. Whoever waits on near gets an error, and Close returns.
func TestCloseInEveryOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []string{
		"near, far, connections", "near, connections, far",
		"far, near, connections", "far, connections, near",
		"connections, near, far", "connections, far, near",
		"near+far+connections+near",
	} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := newStacks(t)
			w := s.busy(t)
			for step := range strings.SplitSeq(order, ", ") {
				s.end(t, step, w.conns)
			}
			w.awaitEnd(t)
		})
	}
}

// work is what goes on over near, and when each ends.
type work struct {
	conns []io.Closer
	ended map[string]chan error
}

// busy has something under way of every kind.
func (s *stacks) busy(t *testing.T) *work {
	t.Helper()
	tcp, err := s.near.Dial("tcp", netip.AddrPortFrom(far4, talk.HTTPPort).String())
	if err != nil {
		t.Fatal(err)
	}
	udp, err := s.near.Dial("udp", netip.AddrPortFrom(far4, talk.EchoPort).String())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := s.near.Listen("tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	w := &work{conns: []io.Closer{tcp, udp, listener}, ended: make(map[string]chan error)}
	w.run("a TCP read", func() error { _, err := tcp.Read(make([]byte, 1)); return err })
	w.run("UDP echoes", func() error { return untilError(func() error { return roundTrip(udp) }) })
	w.run("an accept", func() error { _, err := listener.Accept(); return err })
	w.run("pings", func() error { return untilError(func() error { return s.stack.Ping(context.Background(), far4) }) })
	w.run("a download", func() error { return s.stack.Download(context.Background(), far4, 1<<40) })
	w.run("far's download", func() error { return s.far.try("Download", talkArgs{Host: near4, Bytes: 1 << 40}, &Nothing{}) })
	if err := s.stack.Upload(t.Context(), far6, 1<<20); err != nil { // by then all of it is under way
		t.Fatal(err)
	}
	return w
}

func (w *work) run(what string, f func() error) {
	ended := make(chan error, 1)
	w.ended[what] = ended
	go func() { ended <- f() }() // awaitEnd waits for it
}

// awaitEnd has everything end with an error.
func (w *work) awaitEnd(t *testing.T) {
	t.Helper()
	patience := time.NewTimer(20 * time.Second)
	defer patience.Stop()
	for what, ended := range w.ended {
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s ended well", what)
			}
		case <-patience.C:
			t.Fatalf("%s still waits after everything was closed", what)
		}
	}
}

func untilError(f func() error) error {
	for {
		if err := f(); err != nil {
			return err
		}
	}
}

func roundTrip(c net.Conn) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// end ends what is named, at once when it is several joined by "+".
func (s *stacks) end(t *testing.T, step string, conns []io.Closer) {
	t.Helper()
	begun := time.Now()
	var all sync.WaitGroup
	for name := range strings.SplitSeq(step, "+") {
		all.Go(func() {
			switch name {
			case "near":
				if err := s.near.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			case "far":
				s.far.kill()
			case "connections":
				for _, c := range conns {
					if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Errorf("close %T: %v", c, err)
					}
				}
			}
		})
	}
	all.Wait()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("closing %s took %v", step, took)
	}
}
