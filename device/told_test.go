package device

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/stillwire/stillwire/device/devicetest"
)

// laggard keeps wireguard-go for a moment where it tells of it.
type laggard struct {
	line string
	hold time.Duration
}

func (h *laggard) Write(p []byte) (int, error) {
	if strings.Contains(string(p), h.line) {
		<-time.After(h.hold)
	}
	return len(p), nil
}

// wireguard-go tells of a response before it counts it.
func TestStateAfterReachShowsTheHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		slow := func(o *Options) {
			o.Log = zerolog.New(&laggard{"Received handshake response", 5 * time.Millisecond})
		}
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, slow), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		if err := a.Reach(t.Context(), b.addr); err != nil {
			t.Fatal(err)
		}
		s, err := a.State()
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Peers[0]; p.LastHandshake.IsZero() || p.ReceiveBytes == 0 || p.Handshakes != 1 {
			t.Errorf("after Reach: handshake %v, %d bytes received, %d handshakes", p.LastHandshake, p.ReceiveBytes, p.Handshakes)
		}
	})
}

// The tracker knows wireguard-go by its words. All but two can be had from a real device: those
// of a response that cannot be made, and of a session that cannot be begun, take a race inside
// of it: see TestCrossedHandshakeIsMadeAnew.
func TestTrackerKnowsTheWordsOfWireGuard(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		exchange(t, a, b, 1, 2)
		near, far := a.tracker.get(a.model.peers[b.key.Public()].wg), b.tracker.get(b.model.peers[a.key.Public()].wg)
		if near.count != 1 || near.stood.IsZero() || near.sent.IsZero() {
			t.Errorf("an initiation that was answered is %+v", near)
		}
		if far.count != 1 || !far.replied {
			t.Errorf("an initiation that was answered is for the one who answers %+v", far)
		}
	})
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
		peer := PeerConfig{PublicKey: testPeer(9), Endpoint: EndpointFrom(netip.MustParseAddrPort("192.0.2.9:51820")), AllowedIPs: prefixes("10.9.0.9/32")}
		a.apply(t, a.config(peer))
		pass(rekeyTimeout + 2*time.Second)
		if tr := a.tracker.get(a.model.peers[peer.PublicKey].wg); tr.tries != 2 || a.log.count("retrying (try 2)") != 1 {
			t.Errorf("two initiations without answer are %+v", tr)
		}
	})
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		refuses := func(o *Options) { o.Bind = refusingBind{o.Bind} }
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, refuses)
		peer := PeerConfig{PublicKey: testPeer(9), Endpoint: EndpointFrom(netip.MustParseAddrPort("192.0.2.9:51820")), AllowedIPs: prefixes("10.9.0.9/32")}
		a.apply(t, a.config(peer))
		pass(time.Second)
		if tr := a.tracker.get(a.model.peers[peer.PublicKey].wg); !errors.Is(tr.err, errRefused) || !tr.sent.IsZero() {
			t.Errorf("an initiation that could not be sent is %+v", tr)
		}
	})
}

var errRefused = errors.New("refused")

type refusingBind struct{ conn.Bind }

func (refusingBind) Send([][]byte, conn.Endpoint) error { return errRefused }

func TestDeviceRebindsAndTellsOfItsBind(t *testing.T) {
	d, err := Open(Options{TUN: devicetest.NewTUN(1420), Bind: NewBind(BindOptions{Addrs: loopbacks[:1]})})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Apply(context.Background(), Config{PrivateKey: testKey(8)}); err != nil {
		t.Fatal(err)
	}
	before, ok := d.BindStats()
	if !ok || before.IPv4.Addr.Port() == 0 {
		t.Fatalf("stats %+v, %t", before, ok)
	}
	d.Rebind()
	waitUntil(t, "the socket is opened again on its port", func() bool {
		now, _ := d.BindStats()
		return now.IPv4.Reopened == 1 && now.IPv4.Addr == before.IPv4.Addr
	})

	other, err := Open(Options{TUN: devicetest.NewTUN(1420), Bind: conn.NewStdNetBind()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.Rebind() // does nothing
	if stats, ok := other.BindStats(); ok {
		t.Errorf("a Bind that tells nothing has the stats %+v", stats)
	}
}

// For wg(8) a private key of zero is none: that of "wg set wg0 private-key /dev/null", and that
// which wg setconf and wg syncconf send for a file without a PrivateKey.
func TestUAPIRefusesToTakeTheKeyAway(t *testing.T) {
	a, _, path := socketNodes(t, "wg0")
	const none = "private_key=0000000000000000000000000000000000000000000000000000000000000000\n"
	if got := ask(t, path, "set=1\n"+none+"fwmark=7\n\n"); got != "errno=-22\n\n" {
		t.Errorf("answer %q, want EINVAL", got)
	}
	s, err := a.State()
	if err != nil || s.PublicKey != a.key.Public() || s.FwMark != 0 {
		t.Errorf("state %+v, %v: something has changed", s, err)
	}
	if a.log.count("is not left without") != 1 {
		t.Errorf("log:\n%s", a.log.b.String())
	}
}
