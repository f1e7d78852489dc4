package netstack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/tun"
)

func linesOf(s string) iter.Seq[string] { return strings.SplitSeq(s, "\n") }

// talker is one side of what every pair of stacks must be able to do, whoever made them:
// over a plain wire, over WireGuard, and with upstream's netstack as the far side.
type talker interface {
	dialTCP(context.Context, netip.AddrPort) (halfCloser, error)
	listenTCP(netip.AddrPort) (net.Listener, error)
	dialUDP(netip.AddrPort) (net.Conn, error)
	listenUDP(netip.AddrPort) (net.PacketConn, error)
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

type ours struct{ *Stack }

func (o ours) dialTCP(ctx context.Context, a netip.AddrPort) (halfCloser, error) {
	return o.DialTCP(ctx, netip.AddrPort{}, a)
}
func (o ours) listenTCP(a netip.AddrPort) (net.Listener, error) { return o.ListenTCP(a) }
func (o ours) dialUDP(a netip.AddrPort) (net.Conn, error)       { return o.DialUDP(netip.AddrPort{}, a) }
func (o ours) listenUDP(a netip.AddrPort) (net.PacketConn, error) {
	return o.ListenUDP(a)
}

func TestConversations(t *testing.T) {
	rigs := map[string]func(t *testing.T) (a, b talker){
		"plain wire": func(t *testing.T) (talker, talker) {
			a, b := wiredStacks(t)
			return ours{a}, ours{b}
		},
		"wireguard": func(t *testing.T) (talker, talker) {
			a := newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6)})
			b := newTestStack(t, StackOptions{Addresses: prefixes(addrB4, addrB6)})
			tunnel(t, a, b)
			return ours{a}, ours{b}
		},
		"wireguard with upstream netstack dialling": func(t *testing.T) (talker, talker) {
			dev, n := newUpstream(t, addrA4, addrA6)
			b := newTestStack(t, StackOptions{Addresses: prefixes(addrB4, addrB6)})
			tunnel(t, dev, b)
			return upstreamTalker{n}, ours{b}
		},
		"wireguard with upstream netstack listening": func(t *testing.T) (talker, talker) {
			a := newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6)})
			dev, n := newUpstream(t, addrB4, addrB6)
			tunnel(t, a, dev)
			return ours{a}, upstreamTalker{n}
		},
	}
	for name, rig := range rigs {
		for _, addr := range []netip.Addr{addrB4, addrB6} {
			t.Run(fmt.Sprintf("%s, %s", name, family(addr)), func(t *testing.T) {
				a, b := rig(t)
				t.Run("half-close carries an answer", func(t *testing.T) { halfCloseTalk(t, a, b, addr) })
				size := bulk
				if name != "wireguard" || addr.Is6() {
					size /= 8
				}
				t.Run("bulk arrives unchanged", func(t *testing.T) { bulkTalk(t, a, b, addr, 1, size) })
				t.Run("16 streams at once", func(t *testing.T) { bulkTalk(t, a, b, addr, 16, streamBulk) })
				t.Run("datagrams of all sizes", func(t *testing.T) { datagramTalk(t, a, b, addr) })
			})
		}
	}
}

// halfCloseTalk: the dialler sends a lot and its end, and only then the listener answers.
func halfCloseTalk(t *testing.T, a, b talker, addr netip.Addr) {
	l, err := b.listenTCP(at(addr, 700))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- answerAfterEnd(l) }()

	c, err := a.dialTCP(testContext(t), at(addr, 700))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := randomBytes(1, halfBulk)
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("the answer of %d bytes differs from the %d sent", len(got), len(sent))
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func answerAfterEnd(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	_, err = c.Write(all)
	return err
}

// bulkTalk sends size bytes over each of n streams at once and compares digests.
func bulkTalk(t *testing.T, a, b talker, addr netip.Addr, n, size int) {
	to := at(addr, 700+uint16(n)) // upstream cannot listen again on a port just used
	l, err := b.listenTCP(to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := digestOne(l); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if err := sendOne(testContext(t), a, to, randomBytes(uint64(i), size)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func digestOne(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, c); err != nil {
		return err
	}
	_, err = c.Write(digest.Sum(nil))
	return err
}

func sendOne(ctx context.Context, a talker, to netip.AddrPort, data []byte) error {
	c, err := a.dialTCP(ctx, to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.Copy(c, bytes.NewReader(data)); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if want := sha256.Sum256(data); !bytes.Equal(got, want[:]) {
		return errors.New("the digest of what arrived differs from the digest of what was sent")
	}
	return nil
}

// datagramTalk sends datagrams from one byte to the largest there are and wants each back.
func datagramTalk(t *testing.T, a, b talker, addr netip.Addr) {
	pc, err := b.listenUDP(at(addr, 702))
	if err != nil {
		t.Fatal(err)
	}
	echoed := make(chan struct{})
	go func() { defer close(echoed); echoUDP(pc) }()
	defer func() { pc.Close(); <-echoed }()

	c, err := a.dialUDP(at(addr, 702))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	for _, size := range []int{1, 2, 100, 1280, 1371, 1372, 1373, 1392, 1393, 1500, 4096, 9000, 32768, 65000, 65507} {
		want := randomBytes(uint64(size), size)
		c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write(want); err != nil {
			t.Fatalf("write %d bytes: %v", size, err)
		}
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("read the echo of %d bytes: %v", size, err)
		}
		if !bytes.Equal(buf[:n], want) {
			t.Errorf("%d bytes came back as %d other ones", size, n)
		}
	}
}

func echoUDP(pc net.PacketConn) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		pc.WriteTo(buf[:n], from)
	}
}

func randomBytes(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

func TestPingMeasuresTheRoundTrip(t *testing.T) {
	a, b := wiredStacks(t)
	_ = b
	for _, addr := range []netip.Addr{addrB4, addrB6, addrA4, addrA6} {
		rtt, err := a.Ping(testContext(t), addr)
		if err != nil || rtt <= 0 || rtt > 10*time.Second {
			t.Errorf("ping %s: %v, %v", addr, rtt, err)
		}
	}
}

func TestPingWithoutAnswerSaysSo(t *testing.T) {
	a, _ := wiredStacks(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := a.Ping(ctx, netip.MustParseAddr("10.99.0.77"))
	var timeout net.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() || !strings.Contains(err.Error(), "no echo reply") {
		t.Errorf("got %v", err)
	}
}

func TestOwnAddressesAreReachedInside(t *testing.T) {
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6)})
	for _, addr := range []netip.Addr{addrA4, addrA6} {
		halfCloseTalk(t, ours{s}, ours{s}, addr)
		datagramTalk(t, ours{s}, ours{s}, addr)
	}
	if got := s.Stats().SentPackets; got != 0 {
		t.Errorf("%d packets left the stack", got)
	}
}

func TestDialErrorsTellTheReason(t *testing.T) {
	a, _ := wiredStacks(t)
	only4 := newTestStack(t, StackOptions{Addresses: prefixes(addrA4)})
	tests := map[string]struct {
		dial func(context.Context) error
		want error
		text string
	}{
		"nobody listens": {
			func(ctx context.Context) error { _, err := a.DialTCP(ctx, netip.AddrPort{}, at(addrB4, 1)); return err },
			syscall.ECONNREFUSED, "dial tcp 10.99.0.2:1: connection refused",
		},
		"no address of the family": {
			func(ctx context.Context) error {
				_, err := only4.DialTCP(ctx, netip.AddrPort{}, at(addrB6, 1))
				return err
			},
			syscall.ENETUNREACH, "dial tcp [fd99::2]:1: fd99::2 cannot be reached, the tunnel has no IPv6 address: network is unreachable",
		},
		"no answer": {
			func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				_, err := a.DialTCP(ctx, netip.AddrPort{}, at(netip.MustParseAddr("10.99.0.9"), 1))
				return err
			},
			context.DeadlineExceeded, "dial tcp 10.99.0.9:1: no answer: the TCP handshake was not finished in time",
		},
		"cancelled": {
			func(ctx context.Context) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				_, err := a.DialTCP(ctx, netip.AddrPort{}, at(netip.MustParseAddr("10.99.0.9"), 1))
				return err
			},
			context.Canceled, "dial tcp 10.99.0.9:1: context canceled",
		},
		"foreign source address": {
			func(ctx context.Context) error { _, err := a.DialTCP(ctx, at(addrB4, 0), at(addrB4, 1)); return err },
			syscall.EADDRNOTAVAIL, "dial tcp 10.99.0.2:0->10.99.0.2:1: 10.99.0.2 is not an address of this tunnel: cannot assign requested address",
		},
		"foreign listening address": {
			func(context.Context) error { _, err := a.ListenTCP(at(addrB4, 80)); return err },
			syscall.EADDRNOTAVAIL, "listen tcp 10.99.0.2:80: 10.99.0.2 is not an address of this tunnel: cannot assign requested address",
		},
		"port 0": {
			func(ctx context.Context) error { _, err := a.DialTCP(ctx, netip.AddrPort{}, at(addrB4, 0)); return err },
			nil, "dial tcp 10.99.0.2:0: address 10.99.0.2:0: no port to connect to",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.dial(testContext(t))
			if err == nil || err.Error() != test.text {
				t.Errorf("got  %v\nwant %s", err, test.text)
			}
			var op *net.OpError
			if !errors.As(err, &op) || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %#v, want a net.OpError around %v", err, test.want)
			}
		})
	}
}

func TestPortCanBeListenedOnAgain(t *testing.T) {
	a, b := wiredStacks(t)
	near, far := connected(t, a, b, at(addrB4, 80)) // its listener is closed, far still uses the port
	again, err := b.ListenTCP(at(addrB4, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := b.ListenTCP(at(addrB4, 80)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("two listeners on one port: %v", err)
	}
	wantEcho(t, near, far)
}

func TestUnansweredUDPPortIsReported(t *testing.T) {
	a, b := wiredStacks(t)
	c, err := a.DialUDP(netip.AddrPort{}, at(addrB4, 9))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	c.Write([]byte("anybody?"))
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want connection refused", err)
	}
	if got := b.Stats().Drops; got[DropNoPort] != 1 {
		t.Errorf("drops are %v, want one %s", got, DropNoPort)
	}
}

// The packets below are written by hand, since no stack would send them.
func TestDropsAreCountedByReason(t *testing.T) {
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4, addrA6)})
	four := []byte("ping")
	tests := map[DropReason][]byte{
		DropBadPacket:   {0x70, 1, 2, 3},
		DropNoAddress:   udpPacket(addrB4, netip.MustParseAddr("10.99.0.77"), 5, four, nil),
		DropNoPort:      udpPacket(addrB4, addrA4, 5, four, nil),
		DropBadChecksum: udpPacket(addrB4, addrA4, 53, four, func(p []byte) { p[27] ^= 1 }),
		DropBadSource:   udpPacket(netip.MustParseAddr("224.0.0.1"), addrA4, 5, four, nil),
		DropNoProtocol:  udpPacket(addrB4, addrA4, 5, four, func(p []byte) { p[9] = 250; fixHeader(p) }),
	}
	listener, err := s.ListenUDP(at(addrA4, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for reason, packet := range tests {
		before := s.Stats().Drops
		if n, err := s.Write([][]byte{packet}, 0); n != 1 || err != nil {
			t.Fatalf("%s: Write says %d, %v", reason, n, err)
		}
		after := s.Stats().Drops
		for r, n := range after {
			n -= before[r]
			if want := uint64(0); r == reason && n != 1 || r != reason && n != want {
				t.Errorf("a packet for %s was counted %d times as %s", reason, n, r)
			}
		}
		if after[reason] != before[reason]+1 {
			t.Errorf("no drop counted for %s: %v", reason, after)
		}
	}
}

// A reader that fetches nothing in time loses datagrams, and they are counted.
func TestUnreadDatagramsAreCounted(t *testing.T) {
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4)})
	c, err := s.ListenUDP(at(addrA4, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const size = 4096
	packet := udpPacket(addrB4, addrA4, 53, make([]byte, size), nil)
	const held = datagramReceiveBuffer / size
	for range held + 5 {
		s.Write([][]byte{packet}, 0)
	}
	want := map[DropReason]uint64{DropSocketFull: 5}
	if diff := cmp.Diff(want, s.Stats().Drops); diff != "" {
		t.Error(diff)
	}
}

// Nobody reads from the stack: who sends must wait, nothing may be dropped and no more than
// the queue be held; once reading begins all arrives.
func TestSendersWaitForTheReader(t *testing.T) {
	const datagrams, queue = 500, 8
	a := newTestStack(t, StackOptions{Addresses: prefixes(addrA4), QueueLength: queue})
	b := newTestStack(t, StackOptions{Addresses: prefixes(addrB4)})
	in, err := b.ListenUDP(at(addrB4, 9))
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.DialUDP(netip.AddrPort{}, at(addrB4, 9))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan int, datagrams)
	go func() {
		defer close(sent)
		for i := range datagrams {
			if _, err := out.Write([]byte{byte(i), byte(i >> 8)}); err != nil {
				t.Error(err)
				return
			}
			sent <- i
		}
	}()
	for range queue {
		<-sent
	}
	waitFor(t, "the sender to wait", func() bool {
		a.link.queue.mu.Lock()
		defer a.link.queue.mu.Unlock()
		return a.link.queue.writers == 1
	})
	if got := a.Stats().Queued; got != queue {
		t.Errorf("%d packets are queued, want %d", got, queue)
	}
	wire(t, a, b)
	buf := make([]byte, 10)
	for i := range datagrams {
		n, err := in.Read(buf)
		if err != nil || n != 2 || int(buf[0])|int(buf[1])<<8 != i {
			t.Fatalf("datagram %d is % x, %v", i, buf[:n], err)
		}
	}
	for range sent {
	}
	if drops := a.Stats().Drops; len(drops) != 0 {
		t.Errorf("dropped %v", drops)
	}
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := testContext(t); !cond(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestReadFillsManyBuffersAtOnce(t *testing.T) {
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4)})
	c, err := s.DialUDP(netip.AddrPort{}, at(addrB4, 9))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		c.Write(make([]byte, 100))
	}
	bufs, sizes := make([][]byte, batchSize), make([]int, batchSize)
	for i := range bufs {
		bufs[i] = make([]byte, 16+maxMTU)
	}
	for _, want := range []int{128, 72} {
		n, err := s.Read(bufs, sizes, 16)
		if n != want || err != nil {
			t.Fatalf("Read says %d, %v, want %d", n, err, want)
		}
		for i := range n {
			if sizes[i] != 128 || bufs[i][16] != 0x45 {
				t.Fatalf("packet %d has %d bytes and begins with %#x", i, sizes[i], bufs[i][16])
			}
		}
	}
}

func TestAddressChangeKeepsConnectionsOnKeptAddresses(t *testing.T) {
	a, b := wiredStacks(t)
	kept, keptFar := connected(t, a, b, at(addrB4, 80))
	gone, goneFar := connected(t, a, b, at(addrB6, 80))
	extra := netip.MustParseAddr("10.99.7.7")

	if err := b.SetAddresses(prefixes(extra, addrB4)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prefixes(extra, addrB4), b.Addresses(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	wantEcho(t, kept, keptFar)
	for _, c := range []*TCPConn{gone, goneFar} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("connection on a removed address: %v, want a reset", err)
		}
	}
	fresh, freshFar := connected(t, a, b, at(extra, 80))
	wantEcho(t, fresh, freshFar)
}

// connected makes a connection from a to a listener on b.
func connected(t testing.TB, a, b *Stack, to netip.AddrPort) (near, far *TCPConn) {
	t.Helper()
	l, err := b.ListenTCP(to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = a.DialTCP(testContext(t), netip.AddrPort{}, to)
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func wantEcho(t testing.TB, c, far *TCPConn) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	c.SetDeadline(deadline)
	far.SetDeadline(deadline)
	want := []byte("still here")
	if _, err := c.Write(want); err != nil {
		t.Error(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestMTUChange(t *testing.T) {
	a, b := wiredStacks(t)
	if e := <-a.Events(); e != tun.EventUp {
		t.Fatalf("the first event is %d, want up", e)
	}
	c, far := connected(t, a, b, at(addrB4, 80))
	for _, mtu := range []int{1280, 1500, 9000, 1300} {
		if err := a.SetMTU(mtu); err != nil {
			t.Fatal(err)
		}
		if e := <-a.Events(); e != tun.EventMTUUpdate {
			t.Fatalf("the event is %d, want MTU update", e)
		}
		if got, _ := a.MTU(); got != mtu {
			t.Errorf("MTU is %d, want %d", got, mtu)
		}
		wantEcho(t, c, far)
		bulkTalk(t, ours{a}, ours{b}, addrB4, 1, streamBulk)
	}
	if err := a.SetMTU(1300); err != nil || len(a.Events()) != 0 {
		t.Errorf("setting the same MTU again: %v, %d events", err, len(a.Events()))
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	tests := map[string]StackOptions{
		"MTU 1279 is too small: these addresses need at least 1280":                           {Addresses: prefixes(addrA6), MTU: 1279},
		"MTU 500 is too small: these addresses need at least 576":                             {MTU: 500},
		"MTU 65536 is too large: WireGuard carries at most 65503":                             {MTU: 65536},
		"QueueLength -1 is negative: use 0 for the default":                                   {QueueLength: -1},
		"address invalid Prefix is not valid: write it like 10.0.0.2/24 or fd00::2/64":        {Addresses: []netip.Prefix{{}}},
		"address 127.0.0.1/8 cannot be a tunnel address: use a unicast address of the tunnel": {Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		"address ff02::1/128 cannot be a tunnel address: use a unicast address of the tunnel": {Addresses: []netip.Prefix{netip.MustParsePrefix("ff02::1/128")}},
	}
	for want, o := range tests {
		if _, err := NewStack(o); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestDeadlinesCanBeMoved(t *testing.T) {
	a, b := wiredStacks(t)
	c, far := connected(t, a, b, at(addrB4, 80))
	c.SetReadDeadline(time.Unix(1, 0))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past deadline: %v", err)
	}
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("short deadline: %v", err)
	}
	c.SetReadDeadline(time.Time{})
	wantEcho(t, far, c)

	read := make(chan error, 1)
	c.SetReadDeadline(time.Now().Add(time.Hour))
	go func() { _, err := c.Read(make([]byte, 1)); read <- err }()
	c.SetReadDeadline(time.Unix(1, 0))
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline moved while reading: %v", err)
	}
}

func TestFullSendBufferObeysTheDeadline(t *testing.T) {
	a, b := wiredStacks(t)
	c, _ := connected(t, a, b, at(addrB4, 80))
	more := make([]byte, 32<<20) // than all buffers on the way hold
	c.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := c.Write(more)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
		t.Errorf("wrote %d, %v, want a deadline after some bytes", n, err)
	}
}
