//go:build linux

package netns

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

//	left                      right
//	192.0.2.1/24 ─────────── 192.0.2.2/24
//	2001:db8::1/64           2001:db8::2/64

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	right4 = netip.MustParseAddr("192.0.2.2")
	right6 = netip.MustParseAddr("2001:db8::2")
)

func pair(t *testing.T) (left, right *Namespace) {
	t.Helper()
	lab := NewLab(t)
	left, right = lab.Namespace("left"), lab.Namespace("right")
	lab.Connect(left, right)
	left.AddAddrs("right", "192.0.2.1/24", "2001:db8::1/64")
	right.AddAddrs("left", "192.0.2.2/24", "2001:db8::2/64")
	for _, dst := range []netip.Addr{right4, right6} { // a new link loses packets until the kernel has joined its groups
		if err := left.AwaitPing(dst); err != nil {
			t.Fatal(err)
		}
	}
	return left, right
}

func TestPingIsAnsweredByTheOtherNamespaceAlone(t *testing.T) {
	left, _ := pair(t)
	for _, dst := range []netip.Addr{right4, right6} {
		for _, size := range []int{8, 1400} {
			if n, err := left.Ping(dst, 3, size); n != 3 {
				t.Errorf("ping %s with %d bytes: %d answers, %v", dst, size, n, err)
			}
		}
	}
	if _, err := left.Ping(netip.MustParseAddr("198.51.100.1"), 1, 8); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("ping without a route: %v", err)
	}
}

func TestExchangeCarriesTheSameBytesBothWays(t *testing.T) {
	left, right := pair(t)
	for _, dst := range []netip.Addr{right4, right6} {
		r, err := Exchange(t.Context(), left, right, netip.AddrPortFrom(dst, 7000), 1<<20+17, 0)
		if err != nil || r.Bytes != 1<<20+17 {
			t.Errorf("exchange with %s: %v, %v", dst, r, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r, err := Exchange(ctx, left, right, netip.AddrPortFrom(right4, 7000), 0, 1<<20)
	if err != nil || r.Bytes == 0 || r.Bytes > 1<<20 {
		t.Errorf("exchange at a pace: %v, %v", r, err)
	}
}

func TestFlowTellsWhatWasLostAndWhen(t *testing.T) {
	left, right := pair(t)
	f := StartFlow(t, FlowOptions{From: left, To: right, Src: netip.MustParseAddrPort("192.0.2.1:0"), Dst: netip.AddrPortFrom(right4, 7000)})
	if err := f.AwaitArrival(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	right.NFT("add table ip cut", "add chain ip cut in { type filter hook input priority 0 ; policy drop ; }")
	if err := f.AwaitSent(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	right.NFT("delete table ip cut")
	mended := time.Now()
	if err := f.AwaitArrival(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := f.Stop()
	if len(r.Lost) < 100 || r.Received+len(r.Lost) != r.Sent || r.Doubled != 0 {
		t.Errorf("report: %v", r)
	}
	if r.Gap < mended.Sub(cut)/2 || r.GapAt.Before(cut.Add(-time.Millisecond)) || r.GapAt.After(mended) {
		t.Errorf("gap %v at %v after the cut, which lasted %v", r.Gap, r.GapAt.Sub(cut), mended.Sub(cut))
	}
	if lost := r.LostOutside(Window{cut.Add(-time.Millisecond), mended}); lost != nil {
		t.Errorf("lost outside of the cut: %v", lost)
	}
	if lost := r.LostOutside(); len(lost) != len(r.Lost) {
		t.Errorf("%d of %d lost outside of nothing", len(lost), len(r.Lost))
	}
	if at := f.FirstArrival(mended); at.Before(mended) || f.FirstArrival(time.Now()) != (time.Time{}) {
		t.Errorf("the first datagram sent after the cut arrived %v after it", at.Sub(mended))
	}
}

func TestFlushForgetsConnections(t *testing.T) {
	left, _ := pair(t)
	left.NFT("add table ip t", "add chain ip t out { type filter hook output priority 0 ; }", "add rule ip t out ct state new counter")
	if _, err := left.Ping(right4, 1, 8); err != nil {
		t.Fatal(err)
	}
	if n := connections(t, left); n == 0 {
		t.Fatal("the kernel tracks no connection: the test tests nothing")
	}
	left.FlushConntrack()
	if n := connections(t, left); n != 0 {
		t.Errorf("%d connections after the flush", n)
	}
}

func connections(t *testing.T, n *Namespace) (lines int) {
	t.Helper()
	var b []byte
	err := n.Do(func() (err error) {
		b, err = os.ReadFile("/proc/thread-self/net/nf_conntrack")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func TestNothingIsLeftBehind(t *testing.T) {
	var name string
	var p *Process
	t.Run("lab", func(t *testing.T) {
		lab := NewLab(t)
		n := lab.Namespace("left")
		name = n.name
		n.TUN(lab.Name("tun"), 1420, "10.9.0.1/24")
		p = n.Start(exec.Command("sh", "-c", "exec sleep 60"))
	})
	if _, err := os.Stat(filepath.Join("/run/netns", name)); !os.IsNotExist(err) {
		t.Errorf("namespace %s is left behind: %v", name, err)
	}
	select {
	case <-p.done:
	default:
		t.Error("a process is left behind")
	}
}
