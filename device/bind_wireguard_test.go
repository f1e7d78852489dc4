package device

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	wg "golang.zx2c4.com/wireguard/device"

	"github.com/stillwire/stillwire/device/devicetest"
)

// wireNode is a wireguard-go device with a Bind of ours.
type wireNode struct {
	bind  *Bind
	tun   *devicetest.TUN
	dev   *wg.Device
	key   PrivateKey
	inner netip.Addr
	port  uint16
	tally devicetest.Tally
}

func newWireNode(t *testing.T, inner string, o BindOptions) *wireNode {
	t.Helper()
	key, err := NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	n := &wireNode{bind: NewBind(o), tun: devicetest.NewTUN(1420), key: key, inner: netip.MustParseAddr(inner)}
	n.tun.Handle(n.tally.Add)
	n.dev = wg.NewDevice(n.tun, n.bind, &wg.Logger{Verbosef: wg.DiscardLogf, Errorf: t.Logf})
	t.Cleanup(n.dev.Close)
	private := key.secret.value()
	n.set(t, "private_key=%x\n", private[:])
	if err := n.dev.Up(); err != nil {
		t.Fatal(err)
	}
	n.port = n.bind.Stats().IPv4.Addr.Port()
	return n
}

func (n *wireNode) set(t *testing.T, format string, args ...any) {
	t.Helper()
	if err := n.dev.IpcSet(fmt.Sprintf(format, args...)); err != nil {
		t.Fatal(err)
	}
}

// peer makes p a peer; an invalid address waits for p to speak first.
func (n *wireNode) peer(t *testing.T, p *wireNode, at netip.Addr) {
	t.Helper()
	endpoint := ""
	if at.IsValid() {
		endpoint = "endpoint=" + netip.AddrPortFrom(at, p.port).String() + "\n"
	}
	n.set(t, "public_key=%s\n%sallowed_ip=%s/%d\n", p.key.Public().Hex(), endpoint, p.inner, p.inner.BitLen())
}

// send sends packets and waits for all of them, at most a few hundred under way.
func (n *wireNode) send(t *testing.T, p *wireNode, first, last uint64) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		if err := n.tun.Inject(devicetest.Packet(n.inner, p.inner, seq, 1200)); err != nil {
			t.Fatal(err)
		}
		if (seq-first)%256 == 255 || seq == last {
			waitUntil(t, fmt.Sprintf("packets %d to %d arrived", first, seq), func() bool { return p.tally.Missing(max(first, seq-255), seq) == nil })
		}
	}
}

func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("not within 10 s: %s", what)
		case <-tick.C:
		}
	}
}

func TestWireGuardRunsOverBind(t *testing.T) {
	for _, at := range loopbacks {
		for _, o := range []BindOptions{{}, {NoGSO: true}, {NoGRO: true}, {NoGSO: true, NoGRO: true}} {
			t.Run(fmt.Sprintf("%s NoGSO %t NoGRO %t", at, o.NoGSO, o.NoGRO), func(t *testing.T) {
				a, b := newWireNode(t, "10.9.0.1", o), newWireNode(t, "10.9.0.2", o)
				a.peer(t, b, at)
				b.peer(t, a, netip.Addr{})
				a.send(t, b, 1, 1000)
				b.send(t, a, 1, 1000)
			})
		}
	}
}

func TestWireGuardKeepsItsSessionWhateverHappensToTheSocket(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	a, b := newWireNode(t, "10.9.0.1", BindOptions{}), newWireNode(t, "10.9.0.2", BindOptions{})
	a.peer(t, b, loopbacks[0])
	b.peer(t, a, netip.Addr{})
	a.send(t, b, 1, 10)
	waitUntil(t, "the handshake is noted", func() bool { return !strings.Contains(lastHandshake(t, a), "_sec=0") })
	handshake := lastHandshake(t, a)
	seq := uint64(10)
	for _, event := range []struct {
		name string
		do   func()
	}{
		{"offloads off", func() { b.bind.SetGRO(false); a.bind.SetGSO(false) }},
		{"offloads on", func() { b.bind.SetGRO(true); a.bind.SetGSO(true) }},
		{"rebind", b.bind.Rebind},
		{"sockets die", func() { b.bind.each(func(s udpSocket) { s.close() }) }},
	} {
		before := b.bind.Stats()
		event.do()
		if event.name == "rebind" || event.name == "sockets die" {
			waitUntil(t, event.name+": the sockets are open again", func() bool {
				s := b.bind.Stats()
				return s.IPv4.Reopened > before.IPv4.Reopened && s.IPv6.Reopened > before.IPv6.Reopened
			})
		}
		a.send(t, b, seq+1, seq+100)
		b.send(t, a, seq+1, seq+100)
		seq += 100
		if got := b.bind.Stats().IPv4.Addr.Port(); got != b.port {
			t.Errorf("%s: port %d, want %d", event.name, got, b.port)
		}
	}
	if got := lastHandshake(t, a); got != handshake {
		t.Errorf("a new handshake was needed: %s, first %s", got, handshake)
	}
	a.dev.Close()
	b.dev.Close()
}

// lastHandshake returns what the device says of its last handshake, to the nanosecond.
func lastHandshake(t *testing.T, n *wireNode) (lines string) {
	t.Helper()
	text, err := n.dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "last_handshake_time") {
			lines += line
		}
	}
	return lines
}

func TestWireGuardReachesManyPeersOverOneBind(t *testing.T) {
	hub := newWireNode(t, "10.9.0.1", BindOptions{})
	var spokes []*wireNode
	for i := range 8 {
		s := newWireNode(t, fmt.Sprintf("10.9.1.%d", i), BindOptions{})
		hub.peer(t, s, netip.Addr{})
		s.peer(t, hub, loopbacks[i%2])
		spokes = append(spokes, s)
	}
	for i, s := range spokes {
		from := uint64(1000 * i)
		s.send(t, hub, from+1, from+50)
		hub.send(t, s, from+1, from+50)
	}
	if n := hub.bind.Stats().Sources; n != len(spokes) {
		t.Errorf("%d endpoints are kept, want one per peer", n)
	}
}
