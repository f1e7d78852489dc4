//go:build linux

package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/device/devicetest"
)

// The device that wgctrl talks to, and its peer, on a network in memory:
//
//	wgctrl ── /var/run/wireguard/NAME.sock
//	               │
//	               a 192.0.2.1:51820 ─────────── b 192.0.2.2:51820
//	                 10.9.0.1                      10.9.0.2
type controlled struct {
	*wgctrl.Client
	name string
	a, b *end
}

// end is a device with its instruments.
type end struct {
	*device.Device
	key   device.PrivateKey
	addr  netip.Addr
	tun   *devicetest.TUN
	tally devicetest.Tally
	log   opLog

	mu   sync.Mutex
	told []device.Change
}

func newEnd(t *testing.T, host *devicetest.Host, name, addr string) *end {
	t.Helper()
	e := &end{key: newKey(t), addr: netip.MustParseAddr(addr), tun: devicetest.NewTUN(mtu)}
	e.tun.Handle(e.tally.Add)
	d, err := device.Open(device.Options{
		Name: name, TUN: e.tun, Bind: host.Bind(), OnChange: e.changed,
		Log: zerolog.New(&e.log).Level(zerolog.TraceLevel),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	e.Device = d
	return e
}

func (e *end) changed(c []device.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, c...)
}

// take returns what wgctrl's last request changed, and the operations that it cost.
func (e *end) take() (changes, operations []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	for _, c := range e.told {
		changes = append(changes, fmt.Sprintf("%s: %s -> %s", c.Field, c.Old, c.New))
	}
	for _, line := range e.log.lines {
		_, operation, _ := strings.Cut(line, "UAPI: ")
		operations = append(operations, strings.TrimSuffix(operation, "\"}\n"))
	}
	e.told, e.log.lines = nil, nil
	return changes, operations
}

func newControlled(t *testing.T) *controlled {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatalf("wgctrl looks for sockets in %s, which needs root: run the tests as root", device.UAPIDir)
	}
	network := devicetest.NewNetwork(devicetest.Options{})
	t.Cleanup(network.Close)
	key := newKey(t).Public()
	c := &controlled{name: fmt.Sprintf("sw%x-wgctl", key[:3])}
	c.a = newEnd(t, network.Host("192.0.2.1"), c.name, "10.9.0.1")
	c.b = newEnd(t, network.Host("192.0.2.2"), "wg0", "10.9.0.2")
	psk := newPresharedKey(t)
	mustApply(t, c.b, device.PeerConfig{PublicKey: c.a.key.Public(), PresharedKey: psk, AllowedIPs: hosts(c.a.addr)})
	mustApply(t, c.a, device.PeerConfig{
		PublicKey: c.b.key.Public(), PresharedKey: psk, Endpoint: endpoint(netip.MustParseAddr("192.0.2.2"), nearPort),
		PersistentKeepalive: 25 * time.Second, AllowedIPs: hosts(c.b.addr, far6),
	})
	if err := c.a.Reach(t.Context(), c.b.addr); err != nil {
		t.Fatal(err)
	}
	await(t, 5*time.Second, func() error { // Reach returns while wireguard-go still counts
		if c.b.peerState(t).LastHandshake.IsZero() || c.a.peerState(t).LastHandshake.IsZero() {
			return errors.New("no handshake")
		}
		return nil
	})
	if err := c.a.ListenUAPI(""); err != nil {
		t.Fatal(err)
	}
	client, err := wgctrl.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	c.Client = client
	return c
}

func mustApply(t *testing.T, e *end, peers ...device.PeerConfig) {
	t.Helper()
	if _, err := e.Apply(t.Context(), device.Config{PrivateKey: e.key, ListenPort: nearPort, Peers: peers}); err != nil {
		t.Fatal(err)
	}
}

// device is what wgctrl reads, less what nobody can know beforehand.
func (c *controlled) device(t *testing.T) wgtypes.Device {
	t.Helper()
	d, err := c.Device(c.name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Peers {
		p := &d.Peers[i]
		p.LastHandshakeTime, p.ReceiveBytes, p.TransmitBytes = time.Time{}, 0, 0
	}
	return *d
}

// asItIs is the configuration that wgctrl would write to leave the device as it is.
func (c *controlled) asItIs(t *testing.T) wgtypes.Config {
	t.Helper()
	d := c.device(t)
	config := wgtypes.Config{PrivateKey: &d.PrivateKey, ListenPort: &d.ListenPort, FirewallMark: &d.FirewallMark, ReplacePeers: true}
	for _, p := range d.Peers {
		config.Peers = append(config.Peers, wgtypes.PeerConfig{
			PublicKey: p.PublicKey, PresharedKey: &p.PresharedKey, Endpoint: p.Endpoint,
			PersistentKeepaliveInterval: &p.PersistentKeepaliveInterval, ReplaceAllowedIPs: true, AllowedIPs: p.AllowedIPs,
		})
	}
	return config
}

func ipNet(s string) net.IPNet {
	p := netip.MustParsePrefix(s)
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func TestWgctrlReadsTheDevice(t *testing.T) {
	c := newControlled(t)
	d, err := c.Device(c.name)
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Peers[0]; time.Since(p.LastHandshakeTime) > time.Minute || p.ReceiveBytes == 0 || p.TransmitBytes == 0 {
		t.Errorf("handshake %v, %d bytes received, %d sent", p.LastHandshakeTime, p.ReceiveBytes, p.TransmitBytes)
	}
	got := c.device(t)
	if got.PrivateKey.PublicKey() != got.PublicKey || got.Peers[0].PresharedKey == (wgtypes.Key{}) {
		t.Error("the owner does not get the keys")
	}
	want := wgtypes.Device{
		Name: c.name, Type: wgtypes.Userspace, PublicKey: wgtypes.Key(c.a.key.Public()), ListenPort: nearPort,
		Peers: []wgtypes.Peer{{
			PublicKey: wgtypes.Key(c.b.key.Public()), Endpoint: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: nearPort},
			PersistentKeepaliveInterval: 25 * time.Second, AllowedIPs: []net.IPNet{ipNet("10.9.0.2/32"), ipNet("fd09::2/128")}, ProtocolVersion: 1,
		}},
	}
	secrets := cmp.Options{cmpopts.IgnoreFields(wgtypes.Device{}, "PrivateKey"), cmpopts.IgnoreFields(wgtypes.Peer{}, "PresharedKey")}
	if diff := cmp.Diff(want, got, secrets); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
}

func TestWgctrlMakesTheLeastChange(t *testing.T) {
	c := newControlled(t)
	live, other, unknown := wgtypes.Key(c.b.key.Public()), wgtypes.Key(newKey(t).Public()), wgtypes.Key(newKey(t).Public())
	psk := wgtypes.Key(newKey(t).Public())
	same := c.asItIs(t)
	seconds := func(n int) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	one := func(p wgtypes.PeerConfig) wgtypes.Config { return wgtypes.Config{Peers: []wgtypes.PeerConfig{p}} }
	for _, tt := range []struct {
		name                string
		config              wgtypes.Config
		changes, operations []string
	}{
		{"nothing", wgtypes.Config{}, nil, nil},
		{"the whole device as it is, ReplacePeers and ReplaceAllowedIPs", same, nil, nil},
		{"UpdateOnly of an unknown peer", one(wgtypes.PeerConfig{PublicKey: unknown, UpdateOnly: true, PersistentKeepaliveInterval: seconds(5)}), nil, nil},
		{"UpdateOnly of a known peer", one(wgtypes.PeerConfig{PublicKey: live, UpdateOnly: true, PersistentKeepaliveInterval: seconds(5)}),
			[]string{"keepalive: 25s -> 5s"}, []string{"Updating persistent keepalive interval"}},
		{"ReplaceAllowedIPs by one less and one more", one(wgtypes.PeerConfig{PublicKey: live, ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{ipNet("10.9.0.2/32"), ipNet("10.8.0.0/16")}}),
			[]string{"allowed_ips:  -> 10.8.0.0/16", "allowed_ips: fd09::2/128 -> "}, []string{"Adding allowedip", "Removing allowedip"}},
		{"a new peer takes a prefix", one(wgtypes.PeerConfig{PublicKey: other, PresharedKey: &psk, AllowedIPs: []net.IPNet{ipNet("10.8.0.0/16")}}),
			[]string{"peer:  -> endpoint=(none) preshared_key=(redacted) allowed_ips:", "allowed_ips: 10.8.0.0/16 of peer " + c.b.key.Public().Short() + " -> 10.8.0.0/16"},
			[]string{"Created", "Updating preshared key", "Adding allowedip"}},
		{"Remove of an unknown peer", one(wgtypes.PeerConfig{PublicKey: unknown, Remove: true}), nil, nil},
		{"Remove", one(wgtypes.PeerConfig{PublicKey: other, Remove: true}),
			[]string{"peer: endpoint=(none) preshared_key=(redacted) allowed_ips: 10.8.0.0/16 -> "}, []string{"Removing"}},
		{"back to the device of the beginning, ReplacePeers and ReplaceAllowedIPs", same,
			[]string{"keepalive: 5s -> 25s", "allowed_ips:  -> fd09::2/128"}, []string{"Updating persistent keepalive interval", "Adding allowedip"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.a.take()
			if err := c.ConfigureDevice(c.name, tt.config); err != nil {
				t.Fatal(err)
			}
			changes, operations := c.a.take()
			if diff := cmp.Diff(tt.changes, changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.operations, operations); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWgctrlIsRefusedWhole(t *testing.T) {
	c := newControlled(t)
	before := c.device(t)
	c.a.take()
	mark := 7
	err := c.ConfigureDevice(c.name, wgtypes.Config{FirewallMark: &mark, Peers: []wgtypes.PeerConfig{{PublicKey: before.PublicKey}}})
	if err == nil || !strings.Contains(err.Error(), "errno=-22") {
		t.Errorf("the device's own key as a peer: %v", err)
	}
	if diff := cmp.Diff(before, c.device(t)); diff != "" {
		t.Errorf("a refused request changed (-before +after):\n%s", diff)
	}
	if _, operations := c.a.take(); operations != nil {
		t.Errorf("a refused request made operations: %v", operations)
	}
}

// Two reconcilers replace the whole device by turns, with other peers that come and go,
// while numbered packets go both ways. The peer that carries them is in each configuration.
func TestWgctrlHammersAndTrafficLosesNothing(t *testing.T) {
	c := newControlled(t)
	same := c.asItIs(t)
	before := c.b.peerState(t)
	c.a.take()
	ctx, cancel := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	var sent uint64
	traffic.Go(func() { sent = c.exchange(ctx, t) })

	const calls = 150 // of each reconciler
	var hammers sync.WaitGroup
	for i := range 2 {
		hammers.Go(func() {
			for n := range calls {
				config := same
				config.Peers = append(same.Peers[:1:1], wgtypes.PeerConfig{
					PublicKey: wgtypes.Key{byte(i), byte(n % 3), 1}, ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{ipNet(fmt.Sprintf("10.%d.%d.0/24", 100+i, n%5))},
				})
				if err := c.ConfigureDevice(c.name, config); err != nil {
					t.Error(err)
				}
			}
		})
	}
	hammers.Wait()
	cancel()
	traffic.Wait()
	_, operations := c.a.take()
	t.Logf("%d calls that replace the device, %d operations, %d packets each way", 2*calls, len(operations), sent)
	for _, e := range []*end{c.a, c.b} {
		await(t, 5*time.Second, func() error {
			if missing := e.tally.Missing(1, sent); missing != nil {
				return fmt.Errorf("%s has not got %d of %d packets: %v", e.addr, len(missing), sent, missing)
			}
			return nil
		})
	}
	for _, operation := range operations {
		switch operation {
		case "Created", "Removing", "Adding allowedip", "Removing allowedip":
		default:
			t.Errorf("operation on what did not change: %s", operation)
		}
	}
	if after := c.b.peerState(t); after.LastHandshake != before.LastHandshake {
		t.Error("a handshake was needed")
	}
}

// exchange sends a packet each way every millisecond and returns how many.
func (c *controlled) exchange(ctx context.Context, t *testing.T) (sent uint64) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		sent++
		for _, err := range []error{
			c.a.tun.Inject(devicetest.Packet(c.a.addr, c.b.addr, sent, 200)),
			c.b.tun.Inject(devicetest.Packet(c.b.addr, c.a.addr, sent, 200)),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sent
		}
	}
}

// peerState is the state of an end's only peer.
func (e *end) peerState(t *testing.T) device.PeerState {
	t.Helper()
	s, err := e.State()
	if err != nil || len(s.Peers) != 1 {
		t.Fatalf("state %+v, %v", s, err)
	}
	return s.Peers[0]
}
