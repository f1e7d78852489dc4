package rootless

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	wireguard "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"github.com/stillwire/stillwire/device"
)

// The tunnel of the test: the far end is stock wireguard-go with its own netstack.
var (
	farAddr  = netip.MustParseAddr("10.77.0.1")
	nearAddr = netip.MustParseAddr("10.77.0.2")
)

// far is the far end of the tunnel.
type far struct {
	*netstack.Net
	key  device.PublicKey
	port uint16 // UDP, on loopback
}

// openFar starts the far end, which knows the near end by its key alone.
func openFar(t *testing.T, near device.PublicKey) far {
	t.Helper()
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	tun, stack, err := netstack.CreateNetTUN([]netip.Addr{farAddr}, nil, 1420)
	if err != nil {
		t.Fatal(err)
	}
	dev := wireguard.NewDevice(tun, conn.NewDefaultBind(), wireguard.NewLogger(wireguard.LogLevelError, "far: "))
	t.Cleanup(dev.Close)
	config := fmt.Sprintf("private_key=%s\npublic_key=%s\nallowed_ip=%s/32\n", hexOf(t, key.Reveal()), near.Hex(), nearAddr)
	if err := dev.IpcSet(config); err != nil {
		t.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	return far{Net: stack, key: key.Public(), port: listenPort(t, dev)}
}

func hexOf(t *testing.T, key string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

func listenPort(t *testing.T, dev *wireguard.Device) uint16 {
	t.Helper()
	state, err := dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(state) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "listen_port="); found {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			return uint16(port)
		}
	}
	t.Fatalf("no listen_port in the state of the far end")
	return 0
}

// listen opens a TCP listener inside the tunnel's far end.
func (f far) listen(t *testing.T, port int) net.Listener {
	t.Helper()
	ln, err := f.ListenTCP(&net.TCPAddr{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
