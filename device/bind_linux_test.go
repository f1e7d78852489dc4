package device

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// newPlainBind returns a Bind that moves one datagram per system call, as in a sandbox.

func newPlainBind() conn.Bind {
	b := NewBind(BindOptions{})
	b.kernel.recvmmsg = func(uintptr, []unix.Mmsghdr) (int, unix.Errno) { return 0, unix.ENOSYS }
	return b
}

// kernel's does.

func failing(fault func(m *message) unix.Errno) func(uintptr, []unix.Mmsghdr) (int, unix.Errno) {
	return func(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno) {
		for i := range msgs {
			if errno := fault(readMessage(&msgs[i])); errno != 0 {
				if i == 0 {
					return -1, errno
				}
				return sendmmsg(fd, msgs[:i])
			}
		}
		return sendmmsg(fd, msgs)
	}
}

type message struct {
	datagrams int
	size      int // of the first
	source    bool
}

// kernelOf reaches into the open IPv4 socket.

// heardFrom makes b speak to a, and returns the endpoint a has of it, with a source address.

// sum is for tests that do not care for families.

func TestBindAnswersFromTheAddressSpokenTo(t *testing.T) {
	for _, noGRO := range []bool{false, true} {
		a, b := NewBind(BindOptions{NoGRO: noGRO}), NewBind(BindOptions{NoGRO: noGRO})
		ra, portA := open(t, a, 0)
		rb, _ := open(t, b, 0)
		for _, at := range []string{"127.0.0.2", "127.0.0.1", "127.0.0.3"} {
			addr := netip.MustParseAddr(at)
			b.Send([][]byte{[]byte("hello")}, endpointOf(t, b, addr, portA))
			heard := ra.next(t)
			if err := a.Send(slices.Repeat([][]byte{[]byte("answer")}, 5), heard.ep); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if got, want := rb.next(t).from, netip.AddrPortFrom(addr, portA).String(); got != want {
					t.Errorf("answer came from %s, want %s", got, want)
				}
			}
			heard.ep.ClearSrc()
			a.Send([][]byte{[]byte("answer")}, heard.ep)
			if got, want := rb.next(t).from, netip.AddrPortFrom(loopbacks[0], portA).String(); got != want {
				t.Errorf("after ClearSrc the answer came from %s, want the system's choice %s", got, want)
			}
		}
		a.Close()
		b.Close()
	}
}

func TestBindGathersRunsIntoOneMessage(t *testing.T) {
	var mu sync.Mutex
	var messages, calls int
	a, b := NewBind(BindOptions{}), NewBind(BindOptions{})
	open(t, a, 0)
	rb, port := open(t, b, 0)
	a.kernelOf().sendmmsg = func(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno) {
		n, errno := sendmmsg(fd, msgs)
		mu.Lock()
		defer mu.Unlock()
		messages, calls = messages+n, calls+1
		return n, errno
	}
	send := func() {
		sendInBatches(t, a, endpointOf(t, a, loopbacks[0], port), slices.Repeat([]int{1452}, 128))
		for range 128 {
			rb.next(t)
		}
	}
	send()
	if messages != 3 || calls != 1 {
		t.Errorf("128 packets of 1452 bytes went as %d messages in %d calls, want 3 in 1", messages, calls)
	}
	if s := b.Stats().IPv4; s.ReceiveCalls > 20 {
		t.Errorf("they came in %d batches, want few: GRO joins them", s.ReceiveCalls)
	}
	a.SetGSO(false)
	messages, calls = 0, 0
	send()
	if messages != 128 || calls != 1 {
		t.Errorf("without GSO %d messages in %d calls, want 128 in 1", messages, calls)
	}
}

func TestGSORun(t *testing.T) {
	for _, tc := range []struct {
		sizes []int
		limit int
		want  int
	}{
		{[]int{100}, maxGSO4, 1},
		{[]int{100, 100, 100}, maxGSO4, 3},
		{[]int{100, 100, 50, 100}, maxGSO4, 3},
		{[]int{100, 101}, maxGSO4, 1},
		{[]int{0, 0}, maxGSO4, 1},
		{[]int{100, 0, 100}, maxGSO4, 1},
		{slices.Repeat([]int{10}, 128), maxGSO4, maxSegments},
		{slices.Repeat([]int{1452}, 128), maxGSO4, 45},
		{[]int{40000, 25507}, maxGSO4, 2},
		{[]int{40000, 25508}, maxGSO4, 1},
		{[]int{40000, 25508}, maxGSO6, 2},
	} {
		var bufs [][]byte
		for _, size := range tc.sizes {
			bufs = append(bufs, make([]byte, size))
		}
		if got := gsoRun(bufs, tc.limit); got != tc.want {
			t.Errorf("sizes %v, limit %d: run of %d, want %d", tc.sizes, tc.limit, got, tc.want)
		}
	}
}

// flow sends numbered datagrams of alternating sizes and keeps at most window under way, so

// that nothing is lost for want of room.

func flow(t *testing.T, from, to *Bind, r *reader, at netip.AddrPort, batches int, between func(i int)) {
	t.Helper()
	const window = 512
	ep := endpointOf(t, from, at.Addr(), at.Port())
	seq, got := 0, 0
	for i := range batches {
		between(i)
		var bufs [][]byte
		for range 64 {
			size := 1400
			if seq%20 == 19 {
				size = 600
			}
			bufs = append(bufs, []byte(fmt.Sprintf("%08d%s", seq, strings.Repeat("x", size))))
			seq++
		}
		if err := from.Send(bufs, ep); err != nil {
			t.Fatal(err)
		}
		for ; seq-got > window || (i == batches-1 && got < seq); got++ {
			if d := r.next(t); !strings.HasPrefix(d.payload, fmt.Sprintf("%08d", got)) {
				t.Fatalf("got %s, want %08d: lost, doubled or out of order", d.payload[:8], got)
			}
		}
	}
}

func TestBindSwitchesOffloadsWithoutLoss(t *testing.T) {
	for _, addr := range loopbacks {
		a, b := NewBind(BindOptions{}), NewBind(BindOptions{})
		open(t, a, 0)
		rb, port := open(t, b, 0)
		seen := make(map[[2]bool]bool)
		flow(t, a, b, rb, netip.AddrPortFrom(addr, port), 150, func(i int) {
			if i%10 == 0 {
				a.SetGSO(i%20 == 0)
				b.SetGRO(i%30 == 0)
			}
			s, d := a.Stats(), b.Stats()
			seen[[2]bool{s.IPv4.GSO, d.IPv4.GRO}] = true
		})
		if len(seen) != 4 {
			t.Errorf("combinations of GSO and GRO seen: %v, want all four", seen)
		}
		a.Close()
		b.Close()
	}
}

func TestBindSwitchesGROWhileIdle(t *testing.T) {
	b := NewBind(BindOptions{})
	open(t, b, 0)
	for _, on := range []bool{false, true, false} {
		b.SetGRO(on)
		waitUntil(t, fmt.Sprintf("GRO is %t", on), func() bool { s := b.Stats(); return s.IPv4.GRO == on && s.IPv6.GRO == on })
	}
}

func TestBindRebindsUnderTraffic(t *testing.T) {
	var log syncBuffer
	a, b := NewBind(BindOptions{}), NewBind(BindOptions{Log: zerolog.New(&log)})
	ra, portA := open(t, a, 0)
	rb, port := open(t, b, 0)
	ep := heardFrom(t, b, rb, a, port, portA)
	for range 20 {
		before := b.Stats()
		b.Rebind()
		waitUntil(t, "both sockets are open again", func() bool {
			s := b.Stats()
			return s.IPv4.Reopened > before.IPv4.Reopened && s.IPv6.Reopened > before.IPv6.Reopened
		})
		if ep.SrcIP().IsValid() {
			t.Fatal("the source address outlived the rebind")
		}
		for _, addr := range loopbacks {
			a.Send([][]byte{[]byte("still there?")}, endpointOf(t, a, addr, port))
			if err := b.Send([][]byte{[]byte("yes")}, rb.next(t).ep); err != nil {
				t.Fatal(err)
			}
			ra.next(t)
		}
	}
	if strings.Contains(log.String(), "died") {
		t.Errorf("a rebind is logged as a death:\n%s", log.String())
	}
}

// syncBuffer is a bytes.Buffer for loggers of several goroutines.

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestBindTellsOfNewSourcesOnce(t *testing.T) {
	told := make(chan struct{}, 100)
	b := NewBind(BindOptions{})
	b.OnNewSource(func() { told <- struct{}{} })
	rb, port := open(t, b, 0)
	for range 3 {
		a := NewBind(BindOptions{})
		open(t, a, 0)
		for range 5 {
			a.Send([][]byte{[]byte("hello")}, endpointOf(t, a, loopbacks[0], port))
			rb.next(t)
		}
		a.Close()
	}
	if len(told) != 3 || b.Stats().Sources != 3 {
		t.Errorf("told %d times, %d endpoints kept, want 3 and 3", len(told), b.Stats().Sources)
	}
}

func TestBindMarks(t *testing.T) {
	b := NewBind(BindOptions{})
	if err := b.SetMark(0); err != nil {
		t.Errorf("no mark on a closed bind: %v", err)
	}
	open(t, b, 0)
	if err := b.SetMark(0); err != nil {
		t.Errorf("no mark needs no right, got %v", err)
	}
	err := b.SetMark(0x51)
	if errors.Is(err, unix.EPERM) {
		if !strings.Contains(err.Error(), "it needs CAP_NET_ADMIN") || b.mark.Load() != 0 {
			t.Errorf("got %v and mark %#x, want an error that names the right, and no mark", err, b.mark.Load())
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want int) {
		t.Helper()
		b.each(func(s udpSocket) {
			s.(*fastSocket).raw.Control(func(fd uintptr) {
				if got, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK); err != nil || got != want {
					t.Errorf("%s: mark %#x (%v), want %#x", when, got, err, want)
				}
			})
		})
	}
	check("set while open", 0x51)
	b.Close()
	b.SetMark(0x52)
	open(t, b, 0)
	check("set while closed", 0x52)
	b.Rebind()
	waitUntil(t, "the sockets are replaced", func() bool { s := b.Stats(); return s.IPv4.Reopened == 1 && s.IPv6.Reopened == 1 })
	check("after a rebind", 0x52)
	b.SetMark(0)
	check("taken away", 0)
}

func TestBindBuffers(t *testing.T) {
	small, large := NewBind(BindOptions{ReceiveBuffer: 8192, SendBuffer: 8192}), NewBind(BindOptions{})
	open(t, small, 0)
	open(t, large, 0)
	s, l := small.Stats().IPv4, large.Stats().IPv4
	if s.ReceiveBuffer != 2*8192 || s.SendBuffer != 2*8192 { // the kernel counts double, for its own overhead
		t.Errorf("buffers of %d and %d bytes, want 16384", s.ReceiveBuffer, s.SendBuffer)
	}
	if l.ReceiveBuffer <= s.ReceiveBuffer || l.SendBuffer <= s.SendBuffer {
		t.Errorf("default buffers of %d and %d bytes are no larger than %d", l.ReceiveBuffer, l.SendBuffer, s.ReceiveBuffer)
	}
}

func TestBindCountsWhatTheKernelDrops(t *testing.T) {
	a, b := NewBind(BindOptions{}), NewBind(BindOptions{ReceiveBuffer: 8192, Addrs: loopbacks[:1]})
	open(t, a, 0)
	if _, _, err := b.Open(0); err != nil { // and nobody reads
		t.Fatal(err)
	}
	defer b.Close()
	ep := endpointOf(t, a, loopbacks[0], b.Stats().IPv4.Addr.Port())
	for range 10 {
		a.Send(slices.Repeat([][]byte{make([]byte, 1400)}, 100), ep)
	}
	if n := b.Stats().IPv4.KernelDrops; n == 0 {
		t.Error("1000 datagrams went into a buffer of 16 KiB and none was dropped")
	}
}

func TestBindAllocatesNothing(t *testing.T) {
	for _, o := range []BindOptions{{}, {NoGSO: true, NoGRO: true}} {
		for _, addr := range loopbacks {
			a, b := NewBind(o), NewBind(o)
			fnsA, _, err := a.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			fnsB, port, err := b.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			family := slices.Index(loopbacks, addr)
			packets, sizes, eps := make([][]byte, bindBatch), make([]int, bindBatch), make([]conn.Endpoint, bindBatch)
			for i := range packets {
				packets[i] = make([]byte, 2048)
			}
			bufs := slices.Repeat([][]byte{make([]byte, 1400)}, bindBatch)
			ep := endpointOf(t, a, addr, port)
			receive := func(fn conn.ReceiveFunc) conn.Endpoint {
				for got := 0; got < bindBatch; {
					n, err := fn(packets, sizes, eps)
					if err != nil {
						t.Error(err)
						return nil
					}
					got += n
				}
				return eps[0]
			}
			round := func() {
				a.Send(bufs, ep)
				back := receive(fnsB[family])
				b.Send(bufs, back)
				receive(fnsA[family])
			}
			if raceEnabled {
				round() // the race detector makes pools forget
			} else if n := testing.AllocsPerRun(50, round); n >= 1 {
				t.Errorf("%s, NoGSO %t: %v allocations per round of %d datagrams each way, want none", addr, o.NoGSO, n, bindBatch)
			}
			a.Close()
			b.Close()
		}
	}
}

func TestControlDataRoundTrips(t *testing.T) {
	var b controlBuffer
	n := putSource(b.b[:], netip.MustParseAddr("192.0.2.1"), 7)
	got, ok := parseControl(b.b[:n])
	if want := (control{local: mapped([4]byte{192, 0, 2, 1})}); !ok || got != want {
		t.Errorf("IPv4 source: got %+v %t, want %+v: the interface is not told", got, ok, want)
	}
	n = putSource(b.b[:], netip.MustParseAddr("fe80::1"), 7)
	got, ok = parseControl(b.b[:n])
	if want := (control{local: netip.MustParseAddr("fe80::1").As16(), ifindex: 7}); !ok || got != want {
		t.Errorf("link-local source: got %+v %t, want %+v", got, ok, want)
	}
	if got, ok := parseControl(nil); !ok || got != (control{}) {
		t.Errorf("no control data: got %+v %t", got, ok)
	}
}

func FuzzParseControl(f *testing.F) {
	var b controlBuffer
	n := putSource(b.b[:], netip.MustParseAddr("192.0.2.1"), 7)
	n += putSegment(b.b[n:], 1452)
	f.Add(slices.Clone(b.b[:n]))
	f.Add(slices.Clone(b.b[:putSource(b.b[:], netip.IPv6Loopback(), 1)]))
	f.Add(slices.Repeat([]byte{0xff}, 64))
	f.Add([]byte{15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		var aligned controlBuffer
		in = aligned.b[:copy(aligned.b[:], in)]
		c, ok := parseControl(in)
		if ok && (c.segment < 0 || c.segment > maxMessage) {
			t.Errorf("segment size %d out of range", c.segment)
		}
	})
}
