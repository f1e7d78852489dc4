package demo

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

// node is one end of the tunnels: a TCP/IP stack and a WireGuard device under it.
type node struct {
	name  string
	key   device.PrivateKey
	inner netip.Addr
	port  uint16 // UDP, outer
	stack *netstack.Stack
	engine

	config device.Config // as last asked for
}

// engine is how a configuration gets into the device. The demo exists to compare the two.
type engine interface {
	// Apply makes the device as wanted and returns how many things it changed.
	Apply(ctx context.Context, want device.Config) (int, error)
	// Handshakes counts handshake messages accepted from real peers.
	Handshakes() (uint64, error)
	Close() error
}

// stillwire changes what differs.
type stillwire struct{ *netstack.Net }

func (s stillwire) Apply(ctx context.Context, want device.Config) (int, error) {
	changes, err := s.Net.Apply(ctx, want)
	return len(changes), err
}

func (s stillwire) Handshakes() (n uint64, err error) {
	state, err := s.State()
	for _, p := range state.Peers {
		n += p.Handshakes
	}
	return n, err
}

// naive is wireguard-go as it is usually driven: the whole configuration at each change,
// with replace_peers, on the same stack and socket code as stillwire.
type naive struct {
	dev        *wg.Device
	handshakes atomic.Uint64
}

func newNaive(stack *netstack.Stack, bind conn.Bind) (*naive, error) {
	n := &naive{}
	n.dev = wg.NewDevice(stack, bind, &wg.Logger{
		Verbosef: func(format string, _ ...any) {
			if strings.HasSuffix(format, "Received handshake initiation") || strings.HasSuffix(format, "Received handshake response") {
				n.handshakes.Add(1)
			}
		},
		Errorf: wg.DiscardLogf,
	})
	return n, n.dev.Up()
}

// Apply refuses what Stillwire refuses, to be fair: the comparison is about good changes.
func (n *naive) Apply(_ context.Context, want device.Config) (int, error) {
	want, err := want.Normalized()
	if err != nil {
		return 0, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "private_key=%s\nreplace_peers=true\n", hexOf(want.PrivateKey.Reveal()))
	for _, p := range want.Peers {
		fmt.Fprintf(&b, "public_key=%s\nreplace_allowed_ips=true\n", p.PublicKey.Hex())
		if !p.PresharedKey.IsZero() {
			fmt.Fprintf(&b, "preshared_key=%s\n", hexOf(p.PresharedKey.Reveal()))
		}
		if a, ok := p.Endpoint.AddrPort(); ok {
			fmt.Fprintf(&b, "endpoint=%s\n", a)
		}
		fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", int(p.PersistentKeepalive/time.Second))
		for _, prefix := range p.AllowedIPs {
			fmt.Fprintf(&b, "allowed_ip=%s\n", prefix)
		}
	}
	return 1, n.dev.IpcSet(b.String())
}

func (n *naive) Handshakes() (uint64, error) { return n.handshakes.Load(), nil }

func (n *naive) Close() error {
	n.dev.Close()
	return nil
}

func hexOf(base64Key string) string {
	b, err := base64.StdEncoding.DecodeString(base64Key)
	if err != nil {
		panic("demo: a key that was made here does not decode")
	}
	return hex.EncodeToString(b)
}
