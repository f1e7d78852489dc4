package device

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func newTestRouteWatch(t *testing.T) *routeWatch {
	t.Helper()
	w := newRouteWatch(new(atomic.Uint32), zerolog.New(zerolog.NewTestWriter(t)))
	if w == nil {
		t.Fatal("no route watch")
	}
	return w
}

func TestRouteWatchAsksTheKernel(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := newTestRouteWatch(t)
	for _, tc := range []struct {
		dst, src string
		ifindex  uint32
		err      error
	}{
		{"127.0.0.1", "127.0.0.1", loopback, nil},
		{"127.0.0.1", "127.0.0.2", loopback, nil},
		{"::1", "::1", loopback, nil},
		{"127.0.0.1", "192.0.2.77", 0, unix.EINVAL},
	} {
		ifindex, err := w.ask(netip.MustParseAddr(tc.dst), netip.MustParseAddr(tc.src))
		if errors.Is(err, unix.ENETUNREACH) {
			err = unix.EINVAL // newer kernels say it so
		}
		if ifindex != tc.ifindex || !errors.Is(err, tc.err) {
			t.Errorf("from %s to %s: got interface %d, %v, want %d, %v", tc.src, tc.dst, ifindex, err, tc.ifindex, tc.err)
		}
	}
	w.close()
	if _, err := w.ask(loopbacks[0], loopbacks[0]); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: got %v, want os.ErrClosed", err)
	}
}

func TestRouteWatchClearsSourcesThatAreOffTheRoute(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ifindex uint32
		err     error
		cleared bool
	}{
		{"same interface", 7, nil, false},
		{"another interface", 8, nil, true},
		{"the peer is on this host", loopback, nil, false},
		{"the address is gone", 0, unix.EINVAL, true},
		{"no network at all", 0, unix.ENETUNREACH, false},
	} {
		asked := 0
		w := &routeWatch{lookup: func(netip.Addr, netip.Addr) (uint32, error) { asked++; return tc.ifindex, tc.err }}
		ep := &udpEndpoint{dst: netip.MustParseAddrPort("192.0.2.1:7"), src: netip.MustParseAddr("192.0.2.2"), ifindex: 7}
		if !w.confirm(ep) || asked != 0 {
			t.Errorf("%s: asked %d times though nothing changed", tc.name, asked)
		}
		w.changes.Add(1)
		for range 3 {
			w.confirm(ep)
		}
		if asked != 1 || ep.noSrc.Load() != tc.cleared {
			t.Errorf("%s: asked %d times, cleared %t, want once, %t", tc.name, asked, ep.noSrc.Load(), tc.cleared)
		}
	}
}

func FuzzParseRouteAnswer(f *testing.F) {
	var b [routeAnswer]byte
	n := putRouteRequest(b[:], 1, loopbacks[0], loopbacks[0], 5)
	b[4] = unix.RTM_NEWROUTE
	f.Add(b[:n])
	f.Add([]byte{36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xea, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := parseRouteAnswer(in, 1); err == nil && len(in) < routeHeader+8 {
			t.Errorf("an interface was read out of %d bytes", len(in))
		}
	})
}

// inNamespace runs the rest of the calling test in a user and network namespace of its own,
// as a child process, and reports whether this is the child.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const child = "STILLWIRE_TEST_IN_NAMESPACE"
	if os.Getenv(child) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in the namespace: %v\n%s", err, out)
	}
	return false
}

// ip runs ip(8), one command a line.
func ip(t *testing.T, commands string) {
	t.Helper()
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v\n%s%s", err, commands, out)
	}
}

// A host with two ways out, and a peer that spoke to it over the first:
//
//	198.51.100.1 ── wan0 10.1.0.1 ┐
//	             ── wan1 10.2.0.1 ┘ host
func TestBindFollowsTheRouteToAnotherInterface(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ip(t, `
		link set lo up
		link add wan0 type veth peer name far0
		link add wan1 type veth peer name far1
		addr add 10.1.0.1/24 dev wan0
		addr add 10.2.0.1/24 dev wan1
		link set wan0 up
		link set far0 up
		link set wan1 up
		link set far1 up
		route add default via 10.1.0.2 dev wan0
	`)
	wan0, err := zoneIndex("wan0")
	if err != nil {
		t.Fatal(err)
	}
	b := NewBind(BindOptions{})
	open(t, b, 0)
	o := b.open.Load()
	heard := func() *udpEndpoint {
		key := &sourceKey{remote: netip.MustParseAddr("198.51.100.1").As16(), local: netip.MustParseAddr("10.1.0.1").As16(), ifindex: wan0, port: 7}
		ep := key.endpoint()
		ep.confirmed.Store(o.routes.generation())
		return ep
	}
	send := func(ep *udpEndpoint) {
		if err := b.Send([][]byte{{1}}, ep); err != nil {
			t.Fatal(err)
		}
	}
	change := func(commands string) {
		before := o.routes.generation()
		ip(t, commands)
		waitUntil(t, "the change is noticed", func() bool { return o.routes.generation() > before })
	}

	ep := heard()
	change("route add 203.0.113.0/24 via 10.1.0.2")
	if send(ep); !ep.SrcIP().IsValid() {
		t.Error("the source was given up for a route of others")
	}
	change("route replace default via 10.2.0.2 dev wan1")
	if send(ep); ep.SrcIP().IsValid() {
		t.Errorf("packets leave by wan1 with source %s of wan0", ep.SrcIP())
	}
	if n := b.Stats().IPv4.SourcesCleared; n != 1 {
		t.Errorf("%d sources cleared are counted, want 1", n)
	}

	ep = heard()
	change("addr del 10.1.0.1/24 dev wan0")
	if send(ep); ep.SrcIP().IsValid() {
		t.Errorf("packets leave with source %s, which is gone", ep.SrcIP())
	}
}

func TestBindSpeaksToLinkLocalAddresses(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ip(t, `
		link set lo up
		link add here type veth peer name there
		addr add fe80::1/64 dev here nodad
		addr add fe80::2/64 dev there nodad
		link set here up
		link set there up
	`)
	a, b := NewBind(BindOptions{}), NewBind(BindOptions{})
	ra, portA := open(t, a, 0)
	rb, portB := open(t, b, 0)
	// the two interfaces are on one host, which knows both addresses; the zone chooses
	for _, zone := range []string{"here", "there"} {
		to := netip.AddrPortFrom(netip.MustParseAddr("fe80::1%here"), portB)
		if zone == "there" {
			to = netip.AddrPortFrom(netip.MustParseAddr("fe80::2%there"), portB)
		}
		if err := a.Send([][]byte{[]byte("hello")}, endpointOf(t, a, to.Addr(), portB)); err != nil {
			t.Fatal(err)
		}
		got := rb.next(t)
		if want := netip.AddrPortFrom(to.Addr(), portA).String(); got.from != want {
			t.Errorf("came from %s, want %s", got.from, want)
		}
		if err := b.Send([][]byte{[]byte("answer")}, got.ep); err != nil {
			t.Fatal(err)
		}
		if from := ra.next(t).from; from != to.String() {
			t.Errorf("answer came from %s, want %s", from, to)
		}
	}
}
