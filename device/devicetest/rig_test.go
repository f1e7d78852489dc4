package devicetest

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	wgdevice "golang.zx2c4.com/wireguard/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a real wireguard-go device on the network, with one inner address.
type node struct {
	dev   *wgdevice.Device
	tun   *TUN
	bind  *Bind
	key   *ecdh.PrivateKey
	addr  netip.Addr
	tally Tally
}

func newNode(t *testing.T, h *Host, addr string) *node {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{tun: NewTUN(1420), bind: h.Bind(), key: key, addr: netip.MustParseAddr(addr)}
	n.tun.Handle(n.tally.Add)
	n.dev = wgdevice.NewDevice(n.tun, n.bind, Logger(nil))
	t.Cleanup(n.dev.Close)
	n.set(t, "private_key=%x\nlisten_port=51820\n", key.Bytes())
	if err := n.dev.Up(); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) set(t *testing.T, format string, args ...any) {
	t.Helper()
	if err := n.dev.IpcSet(fmt.Sprintf(format, args...)); err != nil {
		t.Fatal(err)
	}
}

// peer adds a peer; an empty endpoint waits for it to speak first.
func (n *node) peer(t *testing.T, p *node, endpoint string, keepalive int) {
	t.Helper()
	text := fmt.Sprintf("public_key=%x\n", p.key.PublicKey().Bytes())
	if endpoint != "" {
		text += "endpoint=" + endpoint + "\n"
	}
	n.set(t, "%sallowed_ip=%s/%d\npersistent_keepalive_interval=%d\n", text, p.addr, p.addr.BitLen(), keepalive)
}

func (n *node) sendTo(t *testing.T, p *node, first, last uint64) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		if err := n.tun.Inject(Packet(n.addr, p.addr, seq, 200)); err != nil {
			t.Fatal(err)
		}
	}
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
