package devicetest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/conn"
)

// port is an open bind of a test, read by hand.
type port struct {
	t    *testing.T
	bind *Bind
	recv conn.ReceiveFunc
	num  uint16
}

func openPort(t *testing.T, h *Host, num uint16) *port {
	t.Helper()
	b := h.Bind()
	fns, num, err := b.Open(num)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &port{t, b, fns[0], num}
}

func (p *port) send(to string, texts ...string) {
	p.t.Helper()
	ep, err := p.bind.ParseEndpoint(to)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, text := range texts {
		if err := p.bind.Send([][]byte{[]byte(text)}, ep); err != nil {
			p.t.Fatal(err)
		}
	}
}

// got returns what waits to be read, as "text from source to destination".
func (p *port) got() (all []string) {
	p.t.Helper()
	p.bind.mu.Lock()
	waiting := len(p.bind.socket.queue)
	p.bind.mu.Unlock()
	batch := p.bind.BatchSize()
	packets, sizes, eps := make([][]byte, batch), make([]int, batch), make([]conn.Endpoint, batch)
	for i := range packets {
		packets[i] = make([]byte, 2000)
	}
	for len(all) < waiting {
		n, err := p.recv(packets, sizes, eps)
		if err != nil {
			p.t.Fatal(err)
		}
		for i := range n {
			all = append(all, fmt.Sprintf("%s from %s to %s", packets[i][:sizes[i]], eps[i].DstToString(), eps[i].SrcToString()))
		}
	}
	return all
}

func (p *port) want(want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.got()); diff != "" {
		p.t.Errorf("got (-want +got):\n%s", diff)
	}
}

func TestNetworkCarriesBothFamilies(t *testing.T) {
	n := NewNetwork(Options{})
	defer n.Close()
	a := openPort(t, n.Host("192.0.2.1", "192.0.2.11", "2001:db8::1"), 1)
	b := openPort(t, n.Host("192.0.2.2", "2001:db8::2"), 2)
	b.send("192.0.2.11:1", "to the second address")
	b.send("[2001:db8::1]:1", "by IPv6")
	a.want("to the second address from 192.0.2.2:2 to 192.0.2.11", "by IPv6 from [2001:db8::2]:2 to 2001:db8::1")
	a.send("[::ffff:192.0.2.2]:2", "by IPv4")
	b.want("by IPv4 from 192.0.2.1:1 to 192.0.2.2")
	if diff := cmp.Diff(Stats{Sent: 3, Delivered: 3}, n.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestNetworkCountsWhatItLoses(t *testing.T) {
	n := NewNetwork(Options{QueueSize: 2})
	h := n.Host("192.0.2.1")
	a, b := openPort(t, h, 1), openPort(t, n.Host("192.0.2.2"), 2)
	a.send("192.0.2.3:1", "nobody")
	a.send("192.0.2.2:9", "no such port")
	a.send("[2001:db8::1]:1", "no such family: not even sent")
	a.send("192.0.2.2:2", "one", "two", "three")
	n.SetDefaultLink(Link{MTU: 31})
	a.send("192.0.2.2:2", "four")
	n.SetDefaultLink(Link{Loss: 1})
	a.send("192.0.2.2:2", "lost")
	n.Block(h, b.bind.Host())
	b.send("192.0.2.1:1", "blocked")
	n.Unblock(b.bind.Host(), h)
	remove := n.Tap(func(d Datagram) Verdict {
		if want := "192.0.2.1:1 > 192.0.2.2:2, 6 bytes"; d.String() != want || d.From != h || d.To != b.bind.Host() {
			t.Errorf("tap saw %s, want %s", d, want)
		}
		return Drop
	})
	a.send("192.0.2.2:2", "tapped")
	remove()
	n.SetDefaultLink(Link{})
	b.want("one from 192.0.2.1:1 to 192.0.2.2", "two from 192.0.2.1:1 to 192.0.2.2")
	n.Close()
	a.send("192.0.2.2:2", "closed")
	b.want()
	want := Stats{Sent: 10, Delivered: 2, Lost: 1, TooBig: 1, Blocked: 1, Tapped: 1, NoRoute: 2, NoPort: 1, Overflow: 1}
	if diff := cmp.Diff(want, n.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if b.bind.Overflow() != 1 {
		t.Errorf("the bind counts %d overflows, want 1", b.bind.Overflow())
	}
}

func TestNetworkDelaysAndReorders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(Options{Delay: 50 * time.Millisecond})
		defer n.Close()
		a, b := openPort(t, n.Host("192.0.2.1"), 1), openPort(t, n.Host("192.0.2.2"), 2)
		a.send("192.0.2.2:2", "1", "2", "3")
		pass(50*time.Millisecond - 1)
		synctest.Wait()
		b.want()
		pass(time.Nanosecond)
		synctest.Wait()
		b.want("1 from 192.0.2.1:1 to 192.0.2.2", "2 from 192.0.2.1:1 to 192.0.2.2", "3 from 192.0.2.1:1 to 192.0.2.2")

		n.SetLink(a.bind.Host(), b.bind.Host(), Link{Delay: time.Second, Jitter: time.Second})
		a.send("192.0.2.2:2", "1")
		pass(time.Second - 1)
		synctest.Wait()
		b.want()
		pass(time.Second + 1)
		synctest.Wait()
		b.want("1 from 192.0.2.1:1 to 192.0.2.2")

		// jitter reorders; an address that moves meanwhile loses what is under way
		for i := range 20 {
			a.send("192.0.2.2:2", fmt.Sprint(i))
		}
		pass(2 * time.Second)
		synctest.Wait()
		sorted := true
		got := b.got()
		for i, text := range got {
			sorted = sorted && text == fmt.Sprintf("%d from 192.0.2.1:1 to 192.0.2.2", i)
		}
		if len(got) != 20 || sorted {
			t.Errorf("20 datagrams with jitter came as %d, in order: %t", len(got), sorted)
		}
		a.send("192.0.2.2:2", "late")
		b.bind.Host().SetAddrs("192.0.2.3")
		pass(2 * time.Second)
		synctest.Wait()
		b.want()
	})
}

func TestNetworkLosesAlikeWithEqualSeeds(t *testing.T) {
	run := func(seed uint64) []string {
		n := NewNetwork(Options{Seed: seed, Loss: 0.3})
		defer n.Close()
		a, b := openPort(t, n.Host("192.0.2.1"), 1), openPort(t, n.Host("192.0.2.2"), 2)
		for i := range 1000 {
			a.send("192.0.2.2:2", fmt.Sprint(i))
		}
		return b.got()
	}
	first, again, other := run(1), run(1), run(2)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("equal seeds (-first +again):\n%s", diff)
	}
	if cmp.Equal(first, other) || len(first) < 600 || len(first) > 800 {
		t.Errorf("%d and %d of 1000 came with a loss of 0.3 and two seeds", len(first), len(other))
	}
}

func TestHostsSendFromTheAddressSpokenTo(t *testing.T) {
	n := NewNetwork(Options{Unreachable: true})
	defer n.Close()
	a, b := openPort(t, n.Host("192.0.2.1", "192.0.2.11"), 1), openPort(t, n.Host("192.0.2.2"), 2)
	ep := &Endpoint{dst: netip.MustParseAddrPort("192.0.2.2:2")}
	second := netip.MustParseAddr("192.0.2.11")
	ep.src.Store(&second)
	send := func(want error) {
		t.Helper()
		if err := a.bind.Send([][]byte{[]byte("x")}, ep); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	send(nil)
	b.want("x from 192.0.2.11:1 to 192.0.2.2")
	a.bind.Host().SetAddrs("192.0.2.1")
	send(nil)
	b.want("x from 192.0.2.1:1 to 192.0.2.2")
	if ep.SrcIP().IsValid() || ep.SrcToString() != "" {
		t.Errorf("source %s is kept though the host lost it", ep.SrcIP())
	}
	a.bind.Host().SetAddrs("2001:db8::1")
	send(syscall.ENETUNREACH)
	a.bind.Host().SetAddrs()
	send(syscall.ENETUNREACH)
}

func TestHostPorts(t *testing.T) {
	n := NewNetwork(Options{})
	defer n.Close()
	h := n.Host("192.0.2.1")
	a := openPort(t, h, 0)
	if a.num < firstFreePort {
		t.Errorf("port %d was chosen, want a dynamic one", a.num)
	}
	if _, _, err := h.Bind().Open(a.num); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken port: %v, want EADDRINUSE", err)
	}
	if _, _, err := a.bind.Open(1); !errors.Is(err, conn.ErrBindAlreadyOpen) {
		t.Errorf("second open: %v", err)
	}
	old := a.recv
	a.bind.Close()
	if a.bind.Port() != 0 || openPort(t, h, a.num).bind.Port() != a.num {
		t.Error("the port of a closed bind is not free")
	}
	if _, err := old(nil, nil, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive after close: %v, want net.ErrClosed", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("an address was given twice")
		}
	}()
	n.Host("192.0.2.1")
}

func TestBindTellsOfNewSources(t *testing.T) {
	n := NewNetwork(Options{})
	defer n.Close()
	a, b, c := openPort(t, n.Host("192.0.2.1"), 1), openPort(t, n.Host("192.0.2.2"), 2), openPort(t, n.Host("192.0.2.3"), 3)
	told := 0
	a.bind.OnNewSource(func() { told++ })
	for range 3 {
		b.send("192.0.2.1:1", "x")
		c.send("192.0.2.1:1", "x", "x")
		a.got()
	}
	if told != 2 {
		t.Errorf("told of %d new sources, want 2", told)
	}
}

// Who may send to a client behind a NAT that sent to 192.0.2.1:1 alone?
func TestNATKinds(t *testing.T) {
	const (
		same     = "same port from 192.0.2.1:1 to 10.0.0.2"
		host     = "same host from 192.0.2.1:2 to 10.0.0.2"
		stranger = "stranger from 192.0.2.3:3 to 10.0.0.2"
	)
	for _, tc := range []struct {
		kind   NATKind
		passed []string
		second string // where a second destination sees the client
	}{
		{FullCone, []string{same, host, stranger}, "203.0.113.9:49152"},
		{RestrictedCone, []string{same, host}, "203.0.113.9:49152"},
		{PortRestrictedCone, []string{same}, "203.0.113.9:49152"},
		{Symmetric, []string{same}, "203.0.113.9:49153"},
	} {
		t.Run(fmt.Sprint("kind ", tc.kind), func(t *testing.T) {
			n := NewNetwork(Options{})
			defer n.Close()
			nat := n.NAT(netip.MustParseAddr("203.0.113.9"), NATOptions{Kind: tc.kind})
			client := openPort(t, nat.Host("10.0.0.2"), 7)
			server := n.Host("192.0.2.1")
			first, second, third := openPort(t, server, 1), openPort(t, server, 2), openPort(t, n.Host("192.0.2.3"), 3)
			client.send("192.0.2.1:1", "hello")
			first.want("hello from 203.0.113.9:49152 to 192.0.2.1")
			first.send("203.0.113.9:49152", "same port")
			second.send("203.0.113.9:49152", "same host")
			third.send("203.0.113.9:49152", "stranger")
			client.want(tc.passed...)
			client.send("192.0.2.3:3", "hello")
			third.want("hello from " + tc.second + " to 192.0.2.3")
		})
	}
}

func TestNATForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(Options{})
		defer n.Close()
		nat := n.NAT(netip.MustParseAddr("203.0.113.9"), NATOptions{Kind: PortRestrictedCone, Timeout: 30 * time.Second})
		client, server := openPort(t, nat.Host("10.0.0.2"), 7), openPort(t, n.Host("192.0.2.1"), 1)
		for range 3 { // going out keeps the mapping
			client.send("192.0.2.1:1", "hello")
			server.want("hello from 203.0.113.9:49152 to 192.0.2.1")
			pass(29 * time.Second)
		}
		server.send("203.0.113.9:49152", "in time")
		client.want("in time from 192.0.2.1:1 to 10.0.0.2")
		pass(2 * time.Second) // coming in does not
		server.send("203.0.113.9:49152", "too late")
		client.want()
		if nat.Mappings() != 0 {
			t.Errorf("%d mappings are alive, want none", nat.Mappings())
		}
		client.send("192.0.2.1:1", "hello")
		server.want("hello from 203.0.113.9:49153 to 192.0.2.1")
		nat.Rebind()
		server.send("203.0.113.9:49153", "to the old port")
		client.want()
		client.send("192.0.2.1:1", "hello")
		server.want("hello from 203.0.113.9:49154 to 192.0.2.1")
		nat.SetPublic(netip.MustParseAddr("203.0.113.10"))
		client.send("192.0.2.1:1", "hello")
		server.want("hello from 203.0.113.10:49154 to 192.0.2.1")
		server.send("203.0.113.9:49154", "to the old address")
		server.send("203.0.113.10:49154", "to the new address")
		client.want("to the new address from 192.0.2.1:1 to 10.0.0.2")
	})
}

func TestNATsNestAndTurnBack(t *testing.T) {
	n := NewNetwork(Options{})
	defer n.Close()
	outer := n.NAT(netip.MustParseAddr("203.0.113.9"), NATOptions{})
	inner := outer.NAT(netip.MustParseAddr("100.64.0.2"), NATOptions{})
	deep, flat := openPort(t, inner.Host("10.0.0.2"), 7), openPort(t, outer.Host("100.64.0.3"), 8)
	server := openPort(t, n.Host("192.0.2.1"), 1)
	deep.send("192.0.2.1:1", "hello")
	server.want("hello from 203.0.113.9:49152 to 192.0.2.1")
	server.send("203.0.113.9:49152", "answer")
	deep.want("answer from 192.0.2.1:1 to 10.0.0.2")
	flat.send("203.0.113.9:49152", "hairpin")
	deep.want("hairpin from 203.0.113.9:49153 to 10.0.0.2")
	deep.send("100.64.0.3:8", "inside")
	flat.want("inside from 100.64.0.2:49152 to 100.64.0.3")
}
