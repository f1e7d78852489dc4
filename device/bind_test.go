package device

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/stillwire/stillwire/device/devicetest"
)

// bindKind is one implementation of conn.Bind. All are run against the same table.
type bindKind struct {
	name string
	// pair returns two closed binds that reach each other at these addresses.
	pair   func(t *testing.T) (a, b conn.Bind, addrs []netip.Addr)
	sticky bool // it tells which of our addresses was spoken to
}

var loopbacks = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

func bindKinds() []bindKind {
	ours := func(o BindOptions) func(*testing.T) (a, b conn.Bind, addrs []netip.Addr) {
		return func(*testing.T) (conn.Bind, conn.Bind, []netip.Addr) { return NewBind(o), NewBind(o), loopbacks }
	}
	return []bindKind{
		{name: "Bind", pair: ours(BindOptions{}), sticky: true},
		{name: "Bind without offloads", pair: ours(BindOptions{NoGSO: true, NoGRO: true}), sticky: true},
		{name: "Bind one by one", pair: func(*testing.T) (conn.Bind, conn.Bind, []netip.Addr) {
			return newPlainBind(), newPlainBind(), loopbacks
		}},
		{name: "devicetest", pair: func(t *testing.T) (conn.Bind, conn.Bind, []netip.Addr) {
			n := devicetest.NewNetwork(devicetest.Options{})
			t.Cleanup(n.Close)
			h := n.Host("127.0.0.1", "::1")
			return h.Bind(), h.Bind(), loopbacks
		}, sticky: true},
		{name: "upstream", pair: func(*testing.T) (conn.Bind, conn.Bind, []netip.Addr) {
			return conn.NewStdNetBind(), conn.NewStdNetBind(), loopbacks
		}}, // it loses the address that was spoken to while UDP GRO is on
	}
}

// reader collects what the receive functions of a bind give.
type reader struct {
	bind conn.Bind
	got  chan received
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error // of the functions that ended
}

type received struct {
	payload string
	from    string // DstToString of the endpoint
	at      netip.Addr
	ep      conn.Endpoint
}

// open opens a bind and reads it until the test ends or closes it.
func open(t *testing.T, b conn.Bind, port uint16) (*reader, uint16) {
	t.Helper()
	return openSized(t, b, port, 2048)
}

func openSized(t *testing.T, b conn.Bind, port uint16, size int) (*reader, uint16) {
	t.Helper()
	fns, port, err := b.Open(port)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{bind: b, got: make(chan received, 1<<16)}
	for _, fn := range fns {
		r.wg.Go(func() { r.loop(fn, size) })
	}
	t.Cleanup(func() { r.close(t) })
	return r, port
}

func (r *reader) loop(fn conn.ReceiveFunc, size int) {
	batch := r.bind.BatchSize()
	packets, sizes, eps := make([][]byte, batch), make([]int, batch), make([]conn.Endpoint, batch)
	room := make([]byte, batch*size)
	for i := range packets {
		packets[i] = room[i*size:][:size]
	}
	for {
		n, err := fn(packets, sizes, eps)
		if err != nil {
			r.mu.Lock()
			r.errs = append(r.errs, err)
			r.mu.Unlock()
			return
		}
		for i := range n {
			if sizes[i] > 0 {
				r.got <- received{string(packets[i][:sizes[i]]), eps[i].DstToString(), eps[i].SrcIP(), eps[i]}
			}
		}
	}
}

// next waits for a datagram.
func (r *reader) next(t *testing.T) received {
	t.Helper()
	select {
	case d := <-r.got:
		return d
	case <-time.After(10 * time.Second):
		t.Fatal("no datagram came within 10 s")
		return received{}
	}
}

// close closes the bind, waits until its receive functions ended and checks how.
func (r *reader) close(t *testing.T) {
	t.Helper()
	if err := r.bind.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	r.wg.Wait()
	for _, err := range r.errs {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("receive function ended with %v, want net.ErrClosed", err)
		}
	}
}

func endpointOf(t *testing.T, b conn.Bind, addr netip.Addr, port uint16) conn.Endpoint {
	t.Helper()
	ep, err := b.ParseEndpoint(netip.AddrPortFrom(addr, port).String())
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

func TestBindsCarryDatagramsAndAnswers(t *testing.T) {
	for _, k := range bindKinds() {
		t.Run(k.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			a, b, addrs := k.pair(t)
			ra, portA := open(t, a, 0)
			rb, portB := open(t, b, 0)
			if portA == 0 || portB == 0 || portA == portB {
				t.Fatalf("ports %d and %d, want two different ones", portA, portB)
			}
			for _, addr := range addrs {
				if err := a.Send([][]byte{[]byte("hello")}, endpointOf(t, a, addr, portB)); err != nil {
					t.Fatal(err)
				}
				got := rb.next(t)
				want := received{payload: "hello", from: netip.AddrPortFrom(addr, portA).String()}
				if k.sticky {
					want.at = addr
				}
				if got.payload != want.payload || got.from != want.from || got.at != want.at {
					t.Errorf("got %q from %s at %s, want %q from %s at %s", got.payload, got.from, got.at, want.payload, want.from, want.at)
				}
				if err := b.Send([][]byte{[]byte("answer")}, got.ep); err != nil {
					t.Fatal(err)
				}
				if d := ra.next(t); d.payload != "answer" || d.from != netip.AddrPortFrom(addr, portB).String() {
					t.Errorf("got %q from %s, want the answer", d.payload, d.from)
				}
				got.ep.ClearSrc()
				if src := got.ep.SrcIP(); src.IsValid() && !src.IsUnspecified() && k.name != "upstream" {
					t.Errorf("source %s after ClearSrc", src)
				}
			}
			ra.close(t)
			rb.close(t)
		})
	}
}

func TestBindsKeepBatchesWholeAndInOrder(t *testing.T) {
	for _, k := range bindKinds() {
		t.Run(k.name, func(t *testing.T) {
			a, b, addrs := k.pair(t)
			open(t, a, 0)
			rb, port := openSized(t, b, 0, 1<<16-1)
			for _, addr := range addrs {
				ep := endpointOf(t, a, addr, port)
				for _, sizes := range [][]int{
					{1}, {1400, 1400, 1400}, {1400, 1400, 100}, {100, 1400}, {32, 32, 1452, 1452, 1452, 700, 1452, 32},
					slices.Repeat([]int{1452}, 128), slices.Repeat([]int{32}, 128), {9000, 9000, 9000}, {60000, 60000},
				} {
					sendInBatches(t, a, ep, sizes)
					for i, size := range sizes {
						if got := rb.next(t); got.payload != payload(i, size) {
							t.Fatalf("sizes %v: datagram %d came as %d bytes, want %d", sizes, i, len(got.payload), size)
						}
					}
				}
			}
		})
	}
}

func payload(i, size int) string { return string(bytes.Repeat([]byte{byte(i)}, size)) }

func sendInBatches(t *testing.T, b conn.Bind, ep conn.Endpoint, sizes []int) {
	t.Helper()
	var bufs [][]byte
	for i, size := range sizes {
		bufs = append(bufs, []byte(payload(i, size)))
	}
	for chunk := range slices.Chunk(bufs, b.BatchSize()) {
		if err := b.Send(chunk, ep); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBindsRefuseMisuse(t *testing.T) {
	for _, k := range bindKinds() {
		t.Run(k.name, func(t *testing.T) {
			a, b, addrs := k.pair(t)
			if err := a.Close(); err != nil {
				t.Errorf("close of a closed bind: %v", err)
			}
			_, port := open(t, a, 0)
			if _, _, err := a.Open(0); !errors.Is(err, conn.ErrBindAlreadyOpen) {
				t.Errorf("second open: %v, want ErrBindAlreadyOpen", err)
			}
			if _, _, err := b.Open(port); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("open on a taken port: %v, want EADDRINUSE", err)
			}
			if _, err := a.ParseEndpoint("nonsense"); err == nil {
				t.Error("endpoint \"nonsense\" was accepted")
			}
			ep := endpointOf(t, a, addrs[0], port)
			for range 2 {
				if err := a.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
			if err := a.Send([][]byte{{1}}, ep); err == nil {
				t.Error("send on a closed bind was accepted")
			}
			if _, got := open(t, b, port); got != port {
				t.Errorf("port %d, want the freed %d", got, port)
			}
		})
	}
}

func TestBindsReopenOnTheSamePort(t *testing.T) {
	for _, k := range bindKinds() {
		t.Run(k.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			a, b, addrs := k.pair(t)
			rb, _ := open(t, b, 0)
			ra, port := open(t, a, 0)
			ra.close(t)
			rounds := 10
			if k.name == "Bind" {
				rounds = 100
			}
			for i := range rounds {
				r, got := open(t, a, port)
				if got != port {
					t.Fatalf("port %d, want %d", got, port)
				}
				text := fmt.Sprint("round ", i)
				if err := b.Send([][]byte{[]byte(text)}, endpointOf(t, b, addrs[i%2], port)); err != nil {
					t.Fatal(err)
				}
				if d := r.next(t); d.payload != text {
					t.Fatalf("got %q, want %q", d.payload, text)
				}
				r.close(t)
			}
			rb.close(t)
		})
	}
}

func TestBindsCloseWhileBusy(t *testing.T) {
	for _, k := range bindKinds() {
		t.Run(k.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			a, b, addrs := k.pair(t)
			ra, _ := open(t, a, 0)
			rb, port := open(t, b, 0)
			senders := make(chan struct{}, 4)
			for i := range cap(senders) {
				ep := endpointOf(t, a, addrs[i%2], port)
				go func() {
					defer func() { senders <- struct{}{} }()
					for a.Send([][]byte{make([]byte, 100)}, ep) == nil {
					}
				}()
			}
			for range 100 {
				rb.next(t)
			}
			closes := make(chan struct{}, 2)
			for range cap(closes) {
				go func() { a.Close(); b.Close(); closes <- struct{}{} }()
			}
			for range cap(closes) {
				<-closes
			}
			for range cap(senders) {
				<-senders
			}
			ra.close(t)
			rb.close(t)
		})
	}
}

func TestBindListensOnGivenAddresses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		addrs []string
		want  []string // hosts of the sockets
	}{
		{"none is all", nil, []string{"0.0.0.0", "::"}},
		{"one of a family leaves out the other", []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{"IPv6 alone", []string{"::1"}, []string{"::1"}},
		{"one each", []string{"::1", "127.0.0.2"}, []string{"127.0.0.2", "::1"}},
		{"mapped is IPv4", []string{"::ffff:127.0.0.1"}, []string{"127.0.0.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var o BindOptions
			for _, a := range tc.addrs {
				o.Addrs = append(o.Addrs, netip.MustParseAddr(a))
			}
			b := NewBind(o)
			_, port := open(t, b, 0)
			s := b.Stats()
			var got []string
			for _, at := range []netip.AddrPort{s.IPv4.Addr, s.IPv6.Addr} {
				if !at.IsValid() {
					continue
				}
				got = append(got, at.Addr().String())
				if at.Port() != port {
					t.Errorf("socket on port %d, Open said %d", at.Port(), port)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("listens on (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBindSaysWhatIsWrong(t *testing.T) {
	b := NewBind(BindOptions{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	_, port := open(t, b, 0)
	foreign := NewBind(BindOptions{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	_, _, errForeign := foreign.Open(port)
	_, _, errTaken := NewBind(BindOptions{}).Open(port)
	_, errZone := b.ParseEndpoint("[fe80::1%nosuch0]:7")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{b.Send([][]byte{{1}}, endpointOf(t, b, netip.IPv6Loopback(), 7)), "send to [::1]:7: this family is not listened on: address family not supported by protocol"},
		{errTaken, fmt.Sprintf("listen on udp4 port %d: bind: address already in use", port)},
		{errForeign, fmt.Sprintf("listen on udp4 port %d: bind: cannot assign requested address", port)},
		{errZone, "endpoint [fe80::1%nosuch0]:7: no interface is called nosuch0"},
		{b.Send(nil, new(devicetest.Endpoint)), conn.ErrWrongEndpointType.Error()},
	} {
		if tc.err == nil || tc.err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", tc.err, tc.want)
		}
	}
}

func TestBindMakesDoWithWhatTheSystemHas(t *testing.T) {
	missing := func(network string) func(string, int) error {
		return func(n string, _ int) error {
			if n == network {
				return syscall.EAFNOSUPPORT
			}
			return nil
		}
	}
	for _, tc := range []struct {
		name   string
		fault  func(network string, call int) error // of the call-th socket
		v4, v6 bool
		err    error
	}{
		{"no IPv6", missing("udp6"), true, false, nil},
		{"no IPv4", missing("udp4"), false, true, nil},
		{"nothing", func(string, int) error { return syscall.EAFNOSUPPORT }, false, false, syscall.EAFNOSUPPORT},
		{"port free in IPv4 alone, at first", func(n string, call int) error {
			if n == "udp6" && call < 10 {
				return syscall.EADDRINUSE
			}
			return nil
		}, true, true, nil},
		{"no descriptors for the second", func(_ string, call int) error {
			if call == 1 {
				return syscall.EMFILE
			}
			return nil
		}, false, false, syscall.EMFILE},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := NewBind(BindOptions{})
			call := -1
			b.kernel.listenUDP = func(network string, at netip.AddrPort, setUp func(string, string, syscall.RawConn) error) (*net.UDPConn, error) {
				call++
				if err := tc.fault(network, call); err != nil {
					return nil, err
				}
				return listenUDP(network, at, setUp)
			}
			fns, port, err := b.Open(0)
			if !errors.Is(err, tc.err) {
				t.Fatalf("got %v, want %v", err, tc.err)
			}
			s := b.Stats()
			if got := len(fns); s.IPv4.Addr.IsValid() != tc.v4 || s.IPv6.Addr.IsValid() != tc.v6 || (got > 0) != (port != 0) {
				t.Errorf("IPv4 at %s, IPv6 at %s, %d receive functions, port %d", s.IPv4.Addr, s.IPv6.Addr, got, port)
			}
			b.Rebind()
			b.SetGSO(true)
			b.SetGRO(true)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := b.Open(port); port != 0 && err != nil {
				t.Errorf("open again: %v", err)
			}
			b.Close()
		})
	}
}

func TestBindEndpointText(t *testing.T) {
	b := NewBind(BindOptions{})
	for in, want := range map[string]string{
		"192.0.2.1:51820":          "192.0.2.1:51820",
		"[::ffff:192.0.2.1]:51820": "192.0.2.1:51820",
		"[2001:db8::1]:1":          "[2001:db8::1]:1",
		"[fe80::1%1]:9":            "[fe80::1%1]:9",
	} {
		ep, err := b.ParseEndpoint(in)
		if err != nil {
			t.Fatal(err)
		}
		if ep.DstToString() != want || ep.SrcToString() != "" || ep.SrcIP().IsValid() {
			t.Errorf("%s: got %s from %q, want %s from nowhere", in, ep.DstToString(), ep.SrcToString(), want)
		}
	}
}

func TestSourceCacheIsBoundedAndToldOfStrangers(t *testing.T) {
	told := 0
	c := newSourceCache(100, func() { told++ })
	key := func(i int) *sourceKey {
		return &sourceKey{remote: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).As16(), port: 7}
	}
	regular := c.lookup(key(0))
	for i := 1; i < 10000; i++ {
		c.lookup(key(i))
		if c.lookup(key(0)) != regular {
			t.Fatalf("the endpoint of a source that speaks all the time was made anew after %d strangers", i)
		}
	}
	if told != 10000 {
		t.Errorf("told of %d new sources, want 10000", told)
	}
	if n := c.count.Load(); n > 200 {
		t.Errorf("%d endpoints are kept, want at most 200", n)
	}
}

func TestSourceCacheRenewsClearedEndpoints(t *testing.T) {
	c := newSourceCache(10, func() {})
	key := &sourceKey{remote: loopbacks[1].As16(), local: loopbacks[1].As16(), ifindex: 1, port: 7}
	first := c.lookup(key)
	first.ClearSrc()
	second := c.lookup(key)
	if second == first || second.SrcIP() != loopbacks[1] || first.SrcIP().IsValid() {
		t.Errorf("got sources %s then %s, want a fresh endpoint with the address that was spoken to", first.SrcIP(), second.SrcIP())
	}
	c.forget()
	if second.SrcIP().IsValid() {
		t.Errorf("source %s after forget", second.SrcIP())
	}
}
