//go:build linux

package interop

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/test/netns"
)

// mtu of every tunnel: that of wg-quick on a link of 1500, IPv6 outside.
const mtu = 1420

// upstream is wireguard-go's own program on a TUN, configured with wg(8).
type upstream struct {
	t    *testing.T
	name string // of TUN and socket
	key  device.PrivateKey
	ctl  *wgctrl.Client
}

// startUpstream starts the program on a TUN that is there already.
func startUpstream(t *testing.T, ns *netns.Namespace, name string) *upstream {
	t.Helper()
	netns.Need(t, "wg")
	program, err := buildUpstream()
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := wgctrl.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ctl.Close() })
	cmd := exec.Command(program, "-f", name)
	cmd.Env = append(os.Environ(), "WG_PROCESS_FOREGROUND=1", "LOG_LEVEL=error")
	process := ns.Start(cmd)
	u := &upstream{t: t, name: name, key: newKey(t), ctl: ctl}
	await(t, 10*time.Second, func() error {
		if _, err := ctl.Device(name); err != nil {
			return errors.New("upstream wireguard-go does not answer on its socket: " + err.Error() + ": " + process.Output())
		}
		return nil
	})
	return u
}

// setconf does what `wg setconf` does, which replaces all peers.
func (u *upstream) setconf(c device.Config) {
	u.t.Helper()
	c.PrivateKey = u.key
	file := filepath.Join(u.t.TempDir(), "wg.conf")
	if err := os.WriteFile(file, (&device.File{Config: c}).Format(), 0o600); err != nil {
		u.t.Fatal(err)
	}
	u.wg("setconf", u.name, file)
}

func (u *upstream) wg(args ...string) {
	u.t.Helper()
	if out, err := exec.Command("wg", args...).CombinedOutput(); err != nil {
		u.t.Fatalf("wg %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// peer reads one peer as wgctrl sees it.
func (u *upstream) peer(key device.PublicKey) wgtypes.Peer {
	u.t.Helper()
	d, err := u.ctl.Device(u.name)
	if err != nil {
		u.t.Fatal(err)
	}
	i := slices.IndexFunc(d.Peers, func(p wgtypes.Peer) bool { return p.PublicKey == wgtypes.Key(key) })
	if i < 0 {
		u.t.Fatalf("upstream has no peer %s", key)
	}
	return d.Peers[i]
}

// endpoint is where upstream has a peer; invalid: nowhere.
func (u *upstream) endpoint(key device.PublicKey) netip.AddrPort {
	u.t.Helper()
	at := u.peer(key).Endpoint
	if at == nil {
		return netip.AddrPort{}
	}
	a := at.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func newKey(t *testing.T) device.PrivateKey {
	t.Helper()
	k, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newPresharedKey(t *testing.T) device.PresharedKey {
	t.Helper()
	k, err := device.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}
