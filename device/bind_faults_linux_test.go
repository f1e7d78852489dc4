package device

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// failing is a sendmmsg that fails at the first message for which fault has an error, as the

// message is what the kernel is asked to send.

func readMessage(m *unix.Mmsghdr) *message {
	out := &message{datagrams: int(m.Hdr.Iovlen), size: int(m.Hdr.Iov.Len)}
	if m.Hdr.Control != nil {
		c, ok := parseControl(slices.Clone(unsafe.Slice(m.Hdr.Control, int(m.Hdr.Controllen))))
		out.source = ok && c.local != [16]byte{}
	}
	return out
}

func TestBindSendsAllInSpiteOfFaults(t *testing.T) {
	gso := func(errno unix.Errno) func(*message) unix.Errno {
		return func(m *message) unix.Errno { return when(m.datagrams > 1, errno) }
	}
	source := func(errno unix.Errno) func(*message) unix.Errno {
		return func(m *message) unix.Errno { return when(m.source, errno) }
	}
	for _, tc := range []struct {
		name    string
		fault   func(*message) unix.Errno
		err     string // of the first send; "" is none
		lost    int    // of the 200 datagrams sent
		gsoOff  bool   // for the socket
		pathOff bool   // GSO for the endpoint
		cleared bool   // the endpoint's source
	}{
		{name: "none", fault: func(*message) unix.Errno { return 0 }},
		{name: "no checksum offload", fault: gso(unix.EIO), gsoOff: true},
		{name: "not supported", fault: gso(unix.EOPNOTSUPP), gsoOff: true},
		{name: "segments larger than the path's MTU", fault: gso(unix.EMSGSIZE), pathOff: true},
		{name: "segments larger than the path's MTU, older kernels", fault: gso(unix.EINVAL), pathOff: true},
		{name: "no memory for a large packet now", fault: gso(unix.ENOBUFS)},
		{name: "GSO breaks at the second message", fault: second(gso(unix.EIO)), gsoOff: true},
		{name: "source is gone", fault: source(unix.EADDRNOTAVAIL), cleared: true},
		{name: "source is gone, as kernels say it", fault: source(unix.EINVAL), cleared: true},
		{name: "no route from the source", fault: source(unix.ENETUNREACH), cleared: true},
		{name: "source and GSO both bad", fault: func(m *message) unix.Errno {
			return when(m.source, unix.EINVAL) | when(m.datagrams > 1 && !m.source, unix.EIO)
		}, cleared: true, gsoOff: true},
		{name: "socket was full at first", fault: times(1, unix.EAGAIN)},
		{name: "signals", fault: times(3, unix.EINTR)},
		{name: "no route at all", fault: always(unix.ENETUNREACH), lost: 200, err: "send to 127.0.0.1:PORT: sendmmsg: network is unreachable"},
		{name: "firewall", fault: always(unix.EPERM), lost: 200, err: "send to 127.0.0.1:PORT: sendmmsg: operation not permitted"},
		{name: "some datagrams are too large", fault: func(m *message) unix.Errno { return when(m.size == 1401, unix.EMSGSIZE) },
			lost: 2, err: "send to 127.0.0.1:PORT: sendmmsg: message too long"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			a, b := NewBind(BindOptions{Log: zerolog.New(&log)}), NewBind(BindOptions{})
			ra, portA := open(t, a, 0)
			rb, portB := open(t, b, 0)
			ep := heardFrom(t, a, ra, b, portA, portB)
			a.kernelOf().sendmmsg = failing(tc.fault)

			var bufs [][]byte
			for i := range 100 {
				size := 1400
				if i == 50 {
					size = 1401
				}
				bufs = append(bufs, []byte(payload(i, size)))
			}
			want := strings.ReplaceAll(tc.err, "PORT", fmt.Sprint(portB))
			for range 2 {
				if err := a.Send(bufs, ep); (err == nil && want != "") || (err != nil && err.Error() != want) {
					t.Errorf("got error %v, want %q", err, want)
				}
			}
			for i := range 200 - tc.lost {
				rb.next(t)
				_ = i
			}
			s := a.Stats().IPv4
			type outcome struct{ gsoOff, pathOff, cleared, counted bool }
			got := outcome{!s.GSO, ep.noGSO.Load(), ep.noSrc.Load(), s.SourcesCleared == 1}
			if diff := cmp.Diff(outcome{tc.gsoOff, tc.pathOff, tc.cleared, tc.cleared}, got, cmp.AllowUnexported(outcome{})); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if n := strings.Count(log.String(), "segmentation offload does not work"); (n == 1) != tc.gsoOff {
				t.Errorf("log says %d times that GSO does not work:\n%s", n, &log)
			}
		})
	}
}

func when(cond bool, errno unix.Errno) unix.Errno {
	if cond {
		return errno
	}
	return 0
}

func always(errno unix.Errno) func(*message) unix.Errno {
	return func(*message) unix.Errno { return errno }
}

func times(n int, errno unix.Errno) func(*message) unix.Errno {
	return func(*message) unix.Errno { n--; return when(n >= 0, errno) }
}

func second(fault func(*message) unix.Errno) func(*message) unix.Errno {
	n := 0
	return func(m *message) unix.Errno {
		if n++; n == 1 {
			return 0
		}
		return fault(m)
	}
}

func (b *Bind) kernelOf() *kernel { return &b.open.Load().v4.current().(*fastSocket).kernel }

func heardFrom(t *testing.T, a *Bind, ra *reader, b *Bind, portA, portB uint16) *udpEndpoint {
	t.Helper()
	if err := b.Send([][]byte{[]byte("hello")}, endpointOf(t, b, loopbacks[0], portA)); err != nil {
		t.Fatal(err)
	}
	ep := ra.next(t).ep.(*udpEndpoint)
	if want := netip.AddrPortFrom(loopbacks[0], portB); ep.dst != want || ep.src != loopbacks[0] {
		t.Fatalf("heard from %s at %s, want %s at %s", ep.dst, ep.src, want, loopbacks[0])
	}
	return ep
}

func TestBindDropsASourceThatTheHostDoesNotHave(t *testing.T) {
	for i, gone := range []string{"192.0.2.77", "2001:db8::77"} {
		b := NewBind(BindOptions{})
		r, port := open(t, b, 0)
		key := sourceKey{remote: loopbacks[i].As16(), local: netip.MustParseAddr(gone).As16(), ifindex: 1, port: uint32(port)}
		ep := key.endpoint()
		if err := b.Send(slices.Repeat([][]byte{[]byte("to myself")}, 10), ep); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if d := r.next(t); d.at != loopbacks[i] {
				t.Errorf("came to %s, want %s", d.at, loopbacks[i])
			}
		}
		if ep.SrcIP().IsValid() || ep.noGSO.Load() || !b.Stats().sum().GSO {
			t.Errorf("source %s, GSO off for the path %t: want the source alone given up", ep.SrcIP(), ep.noGSO.Load())
		}
		b.Close()
	}
}

func (s BindStats) sum() SocketStats { s.IPv4.GSO = s.IPv4.GSO && s.IPv6.GSO; return s.IPv4 }

// brokenReads is a recvmmsg that returns errors while it is told to.

type brokenReads struct {
	errno atomic.Int64
	count atomic.Int64 // errors returned
	limit atomic.Int64
}

func (r *brokenReads) recvmmsg(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno) {
	if errno := r.errno.Load(); errno != 0 && len(msgs) > 0 && r.limit.Add(-1) >= 0 {
		r.count.Add(1)
		return -1, unix.Errno(errno)
	}
	return recvmmsg(fd, msgs)
}

func TestBindSurvivesReceiveErrors(t *testing.T) {
	for _, tc := range []struct {
		name     string
		errno    unix.Errno
		times    int64
		reopened uint64
	}{
		{"an ICMP message", unix.ECONNREFUSED, 3, 0},
		{"no route for a while", unix.EHOSTUNREACH, 500, 0},
		{"no memory now", unix.ENOMEM, 5, 0},
		{"a dead socket", unix.EBADF, 1, 1},
		{"a dead interface", unix.ENETDOWN, 1, 1},
		{"three sockets die one after the other", unix.EIO, 3, 3},
		{"soft errors without end", unix.ECONNREFUSED, softErrors + 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			var faults brokenReads
			a, b := NewBind(BindOptions{}), NewBind(BindOptions{Addrs: loopbacks[:1]})
			b.kernel.recvmmsg = faults.recvmmsg
			ra, _ := open(t, a, 0)
			rb, port := open(t, b, 0)
			faults.limit.Store(tc.times)
			faults.errno.Store(int64(tc.errno))
			b.SetGRO(false) // wakes the receiver, which runs into the error
			waitUntil(t, "all errors were returned", func() bool { return faults.count.Load() == tc.times })
			waitUntil(t, "the socket is open again", func() bool { return b.Stats().IPv4.Reopened == tc.reopened })
			if err := a.Send([][]byte{[]byte("hello")}, endpointOf(t, a, loopbacks[0], port)); err != nil {
				t.Fatal(err)
			}
			rb.next(t)
			ra.close(t)
			rb.close(t)
		})
	}
}

func TestBindWaitsForItsPortAndClosesMeanwhile(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var log syncBuffer
	b := NewBind(BindOptions{Addrs: loopbacks[:1], Log: zerolog.New(&log)})
	r, port := open(t, b, 0)
	line := b.open.Load().v4
	line.mu.Lock() // the thief is faster than the line
	line.current().close()
	thief, err := net.ListenUDP("udp4", &net.UDPAddr{Port: int(port)})
	line.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the bind says that its port is taken", func() bool { return strings.Contains(log.String(), "address already in use") })
	if err := b.Send([][]byte{{1}}, endpointOf(t, b, loopbacks[0], 9)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("send without a socket: %v, want net.ErrClosed", err)
	}
	thief.Close()
	waitUntil(t, "the bind has its port again", func() bool { return b.Stats().IPv4.Reopened == 1 })
	b.Send([][]byte{[]byte("to myself")}, endpointOf(t, b, loopbacks[0], port))
	r.next(t)
	if n := strings.Count(log.String(), "cannot open"); n != 1 {
		t.Errorf("the log tells %d times of a port that is taken, want once:\n%s", n, log.String())
	}

	line.mu.Lock()
	line.current().close()
	thief, err = net.ListenUDP("udp4", &net.UDPAddr{Port: int(port)})
	line.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	waitUntil(t, "the bind misses its port", func() bool { return strings.Count(log.String(), "cannot open") == 2 })
	r.close(t)
}

func TestBindReopensASocketThatSendingFindsDead(t *testing.T) {
	b := NewBind(BindOptions{Addrs: loopbacks[:1]})
	r, port := open(t, b, 0)
	ep := endpointOf(t, b, loopbacks[0], port)
	b.kernelOf().sendmmsg = failing(always(unix.EBADF))
	if err := b.Send([][]byte{{1}}, ep); !errors.Is(err, unix.EBADF) {
		t.Fatalf("got %v, want EBADF", err)
	}
	waitUntil(t, "the socket was replaced", func() bool { return b.Stats().IPv4.Reopened == 1 })
	if err := b.Send([][]byte{[]byte("hello")}, ep); err != nil {
		t.Fatal(err)
	}
	r.next(t)
}

func TestBindDropsWhatItCannotRead(t *testing.T) {
	for _, noGRO := range []bool{false, true} {
		a, b := NewBind(BindOptions{}), NewBind(BindOptions{NoGRO: noGRO, Addrs: loopbacks[:1]})
		open(t, a, 0)
		var damage func(m *unix.Mmsghdr)
		b.kernel.recvmmsg = func(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno) {
			n, errno := recvmmsg(fd, msgs)
			if n > 0 && damage != nil {
				damage(&msgs[0])
			}
			return n, errno
		}
		damages := []func(m *unix.Mmsghdr){
			func(m *unix.Mmsghdr) { m.Hdr.Flags |= unix.MSG_TRUNC },
			func(m *unix.Mmsghdr) { m.Hdr.Flags |= unix.MSG_CTRUNC },
			func(m *unix.Mmsghdr) { m.Hdr.Namelen = 0; *m.Hdr.Name = 0 },
			func(m *unix.Mmsghdr) { *m.Hdr.Control = 255 },
		}
		var i atomic.Int64
		damage = func(m *unix.Mmsghdr) {
			if k := int(i.Add(1)) - 1; k < len(damages) {
				damages[k](m)
			}
		}
		rb, port := open(t, b, 0)
		for k := range damages {
			a.Send([][]byte{[]byte("damaged")}, endpointOf(t, a, loopbacks[0], port))
			waitUntil(t, "the damaged datagram is counted", func() bool { return b.Stats().IPv4.Malformed == uint64(k)+1 })
		}
		a.Send([][]byte{[]byte("whole")}, endpointOf(t, a, loopbacks[0], port))
		if d := rb.next(t); d.payload != "whole" {
			t.Errorf("got %q", d.payload)
		}
		a.Close()
		b.Close()
	}
}
