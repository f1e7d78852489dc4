package netstack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
	"go.uber.org/goleak"
	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	upstream "golang.zx2c4.com/wireguard/tun/netstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA4 = netip.MustParseAddr("10.99.0.1")
	addrB4 = netip.MustParseAddr("10.99.0.2")
	addrA6 = netip.MustParseAddr("fd99::1")
	addrB6 = netip.MustParseAddr("fd99::2")
)

func prefixes(addrs ...netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// testContext ends long before go test would give up, so that a hang names its place.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newTestStack(t testing.TB, o StackOptions) *Stack {
	t.Helper()
	s, err := NewStack(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// wire carries packets between two TUN devices without WireGuard, both ways, until they
// are closed.
//
//	a --Read/Write--> b
//	a <--Write/Read-- b
func wire(t testing.TB, a, b tun.Device) {
	ended := make(chan struct{}, 2)
	go carry(a, b, ended)
	go carry(b, a, ended)
	t.Cleanup(func() {
		a.Close()
		b.Close()
		<-ended
		<-ended
	})
}

func carry(from, to tun.Device, ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	bufs, sizes, packets := make([][]byte, batchSize), make([]int, batchSize), make([][]byte, batchSize)
	for i := range bufs {
		bufs[i] = make([]byte, maxMTU)
	}
	for {
		n, err := from.Read(bufs, sizes, 0)
		if err != nil {
			return
		}
		for i := range n {
			packets[i] = bufs[i][:sizes[i]]
		}
		if _, err := to.Write(packets[:n], 0); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// wiredStacks are two dual-stack Stacks that see each other without WireGuard between them.
func wiredStacks(t testing.TB) (a, b *Stack) {
	t.Helper()
	a = newTestStack(t, StackOptions{Name: "a", Addresses: prefixes(addrA4, addrA6)})
	b = newTestStack(t, StackOptions{Name: "b", Addresses: prefixes(addrB4, addrB6)})
	wire(t, a, b)
	return a, b
}

// end is one side of a tunnel of two real wireguard-go devices over UDP on loopback.
type end struct {
	tun  tun.Device
	dev  *wg.Device
	key  device.PrivateKey
	port uint16
	ips  []netip.Prefix
}

// tunnel connects a and b by wireguard-go, with a handshake already made.
func tunnel(t testing.TB, a, b tun.Device) {
	t.Helper()
	tunnelOver(t, conn.NewDefaultBind, a, b)
}

// tunnelOver is tunnel over other sockets than wireguard-go's own.
func tunnelOver(t testing.TB, bind func() conn.Bind, a, b tun.Device) {
	t.Helper()
	ea := openEnd(t, a, bind(), prefixes(addrA4, addrA6))
	eb := openEnd(t, b, bind(), prefixes(addrB4, addrB6))
	ea.peerWith(t, eb)
	eb.peerWith(t, ea)
}

func openEnd(t testing.TB, dev tun.Device, bind conn.Bind, ips []netip.Prefix) *end {
	t.Helper()
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	e := &end{tun: dev, dev: wg.NewDevice(dev, bind, wg.NewLogger(wg.LogLevelSilent, "")), key: key, ips: ips}
	t.Cleanup(e.dev.Close)
	e.set(t, "private_key="+privateHex(t, key)+"\nlisten_port=0\n")
	if err := e.dev.Up(); err != nil {
		t.Fatal(err)
	}
	e.port = listenPort(t, e.dev)
	return e
}

func (e *end) set(t testing.TB, uapi string) {
	t.Helper()
	if err := e.dev.IpcSet(uapi); err != nil {
		t.Fatal(err)
	}
}

func (e *end) peerWith(t testing.TB, other *end) {
	t.Helper()
	uapi := fmt.Sprintf("public_key=%s\nendpoint=127.0.0.1:%d\n", other.key.Public().Hex(), other.port)
	for _, p := range other.ips {
		uapi += fmt.Sprintf("allowed_ip=%s\n", p)
	}
	e.set(t, uapi)
}

func privateHex(t testing.TB, k device.PrivateKey) string {
	t.Helper()
	var raw wg.NoisePrivateKey
	if err := raw.FromHex(hexOf(t, k.Reveal())); err != nil {
		t.Fatal(err)
	}
	return hexOf(t, k.Reveal())
}

func hexOf(t testing.TB, base64Key string) string {
	t.Helper()
	k, err := device.ParsePublicKey(base64Key) // the text form is the same for all keys
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(k[:])
}

func listenPort(t testing.TB, dev *wg.Device) (port uint16) {
	t.Helper()
	text, err := dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	for line := range linesOf(text) {
		if _, err := fmt.Sscanf(line, "listen_port=%d", &port); err == nil {
			return port
		}
	}
	t.Fatalf("no listen_port in %q", text)
	return 0
}

// newUpstream is wireguard-go's own netstack.
func newUpstream(t testing.TB, addrs ...netip.Addr) (tun.Device, *upstream.Net) {
	t.Helper()
	dev, n, err := upstream.CreateNetTUN(addrs, nil, DefaultMTU)
	if err != nil {
		t.Fatal(err)
	}
	return dev, n
}
