//go:build linux

package interop

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/test/netns"
)

// A stock client behind a home router that forgets its mappings under traffic:
//
//	client                nat                              hub
//	upstream              nft masquerade                   stillwire, or for the
//	wireguard-go          to :40000-40099, then            control upstream
//	TUN 10.9.0.2          to :40100-40199, and so on       TUN 10.9.0.1
//	 │                     │            │                   │
//	10.0.0.2 ────────── 10.0.0.1   192.0.2.254 ────────── 192.0.2.1:51820
//
// With each rebind the client's packets come to the hub from another port, and the hub's
// packets to the port before find nobody. Who writes over the address that the hub has just
// learnt sends into the void until the client tires.
type behindNAT struct {
	client, nat, hub *netns.Namespace
	clientProgram    *upstream
	lab              *netns.Lab
	moments          []time.Time // of rebinds, each its begin and its end
}

const (
	rebinds = 10
	reapply = 300 // Apply calls over all rebinds
)

var (
	hubAddr = netip.MustParseAddrPort("192.0.2.1:51820")
	natAddr = netip.MustParseAddr("192.0.2.254")
)

func newBehindNAT(t *testing.T) *behindNAT {
	t.Helper()
	netns.Need(t, "nft")
	lab := netns.NewLab(t)
	b := &behindNAT{lab: lab, client: lab.Namespace("client"), nat: lab.Namespace("nat"), hub: lab.Namespace("hub")}
	lab.Connect(b.client, b.nat)
	lab.Connect(b.nat, b.hub)
	b.client.AddAddrs("nat", "10.0.0.2/24")
	b.client.IP("route add default via 10.0.0.1")
	b.nat.AddAddrs("client", "10.0.0.1/24")
	b.nat.AddAddrs("hub", "192.0.2.254/24")
	b.hub.AddAddrs("nat", "192.0.2.1/24")
	b.nat.Sysctl("net/ipv4/ip_forward", "1")
	b.nat.NFT("add table ip nat", "add chain ip nat out { type nat hook postrouting priority srcnat ; }")
	b.mapTo(0)
	b.client.TUN(lab.Name("client"), mtu, "10.9.0.2/24")
	b.hub.TUN(lab.Name("hub"), mtu, "10.9.0.1/24")
	b.clientProgram = startUpstream(t, b.client, lab.Name("client"))
	return b
}

// mapTo gives connections that begin from now on a port of the i-th hundred.
func (b *behindNAT) mapTo(i int) {
	first, last := ports(i)
	b.nat.NFT("flush chain ip nat out", fmt.Sprintf(`add rule ip nat out oifname "hub" meta l4proto udp masquerade to :%d-%d`, first, last))
}

func ports(i int) (first, last uint16) { return uint16(40000 + 100*i), uint16(40099 + 100*i) }

// mapped reports whether an address is the i-th mapping.
func mapped(a netip.AddrPort, i int) bool {
	first, last := ports(i)
	return a.Addr() == natAddr && first <= a.Port() && a.Port() <= last
}

// rebind makes the router forget, as one does that was switched off and on.
func (b *behindNAT) rebind(i int) {
	b.mapTo(i)
	begun := time.Now()
	b.nat.FlushConntrack()
	b.moments = append(b.moments, begun, time.Now())
}

// dark is when packets to the client may be lost: what is under way at a rebind, and all
// until the hub has a packet of the client's from the new mapping.
func (b *behindNAT) dark(t *testing.T, up, down *netns.Flow) (windows []netns.Window) {
	t.Helper()
	for m := range slices.Chunk(b.moments, 2) {
		w := darkWindow(t, m[0], m[1], up)
		w.From = earlier(m[0], down.UnderWaySince(m[0]))
		windows = append(windows, w)
	}
	return windows
}

// configureClient gives the client what a user's wg-quick file says.
func (b *behindNAT) configureClient(hub device.PublicKey) {
	b.clientProgram.setconf(device.Config{Peers: []device.PeerConfig{{
		PublicKey: hub, Endpoint: device.EndpointFrom(hubAddr), AllowedIPs: hosts(near4), PersistentKeepalive: 25 * time.Second,
	}}})
}

// clientAsPeer is the client in the hub's configuration.
func (b *behindNAT) clientAsPeer() device.PeerConfig {
	return device.PeerConfig{PublicKey: b.clientProgram.key.Public(), AllowedIPs: hosts(far4)}
}

// flows go both ways once the client has spoken.
func (b *behindNAT) flows(t *testing.T) (up, down *netns.Flow) {
	t.Helper()
	if err := b.client.AwaitPing(near4); err != nil {
		t.Fatal(err)
	}
	const rate = 500
	up = netns.StartFlow(t, netns.FlowOptions{From: b.client, To: b.hub, Src: netip.AddrPortFrom(far4, 0), Dst: netip.AddrPortFrom(near4, 7000), Rate: rate})
	down = netns.StartFlow(t, netns.FlowOptions{From: b.hub, To: b.client, Src: netip.AddrPortFrom(near4, 0), Dst: netip.AddrPortFrom(far4, 7000), Rate: rate})
	for _, f := range []*netns.Flow{up, down} {
		if err := f.AwaitArrival(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return up, down
}

func TestClientBehindARebindingNATIsFollowed(t *testing.T) {
	for _, tt := range []struct {
		name      string
		keepalive time.Duration
		declared  bool // the hub's configuration holds an address that the client once had
	}{
		{"without keepalive", 0, false},
		{"with keepalive", 25 * time.Second, false},
		{"without keepalive, with a declared endpoint", 0, true},
		{"with keepalive and a declared endpoint", 25 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBehindNAT(t)
			peer := b.clientAsPeer()
			peer.PersistentKeepalive = tt.keepalive
			writes := 0
			if tt.declared {
				first, _ := ports(0)
				peer.Endpoint, writes = endpoint(natAddr, first), 1
			}
			node := startNode(t, b.hub, newKey(t), NodeOptions{Name: b.lab.Name("hub")})
			want := device.Config{ListenPort: hubAddr.Port(), Peers: []device.PeerConfig{peer}}
			node.apply(want)
			b.configureClient(node.key.Public())
			up, down := b.flows(t)
			operations := len(node.operations("UAPI: "))
			handshake := node.settled(peer.PublicKey).LastHandshake

			for i := range rebinds {
				b.rebind(i + 1)
				for range reapply / rebinds {
					if changes := node.apply(want); len(changes) != 0 {
						t.Fatalf("an unchanged Config changes %v", changes)
					}
				}
				await(t, 10*time.Second, func() error {
					return node.follows(peer.PublicKey, func(at netip.AddrPort) bool { return mapped(at, i+1) })
				})
				if err := down.AwaitArrival(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			reports := netns.StopAll(up, down)
			t.Logf("client to hub: %v", reports[0])
			t.Logf("hub to client: %v, %d rebinds", reports[1], rebinds)
			if len(reports[0].Lost) > 0 {
				t.Errorf("lost from client to hub: %v", reports[0].Lost)
			}
			if lost := reports[1].LostOutside(b.dark(t, up, down)...); lost != nil {
				t.Errorf("lost from hub to client, and not under way at a rebind: %v", lost)
			}
			if n := len(node.operations("UAPI: ")) - operations; n != 0 {
				t.Errorf("%d operations for %d unchanged Configs", n, reapply)
			}
			if ops := node.operations("Updating endpoint"); len(ops) != writes {
				t.Errorf("%d endpoint writes, want %d: %v", len(ops), writes, ops)
			}
			if now := node.peer(peer.PublicKey).LastHandshake; !now.Equal(handshake) {
				t.Error("a rebind took a handshake")
			}
		})
	}
}

// The client sends nothing but its keepalive: when its mapping has gone, the next one tells
// the hub. Until then nobody can.
func TestIdleClientBehindARebindingNATIsFoundByItsKeepalive(t *testing.T) {
	t.Parallel()
	b := newBehindNAT(t)
	peer := b.clientAsPeer()
	node := startNode(t, b.hub, newKey(t), NodeOptions{Name: b.lab.Name("hub")})
	node.apply(device.Config{ListenPort: hubAddr.Port(), Peers: []device.PeerConfig{peer}})
	b.configureClient(node.key.Public())
	b.clientProgram.wg("set", b.clientProgram.name, "peer", node.key.Public().String(), "persistent-keepalive", "1")
	if err := b.client.AwaitPing(near4); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		b.rebind(i + 1)
		await(t, 10*time.Second, func() error {
			return node.follows(peer.PublicKey, func(at netip.AddrPort) bool { return mapped(at, i+1) })
		})
		if _, err := b.hub.Ping(far4, 3, 8); err != nil {
			t.Errorf("after rebind %d: %v", i+1, err)
		}
	}
}

// The control: the same client, traffic and rebinds, and a hub that does what reconcilers
// do that cannot tell a difference: it writes the whole device again every second, with the
// address that it was told first. It shows what the other tests would find.
func TestControlNaiveReapplierLosesTheClient(t *testing.T) {
	t.Parallel()
	b := newBehindNAT(t)
	hub := startUpstream(t, b.hub, b.lab.Name("hub"))
	peer := b.clientAsPeer()
	first, _ := ports(0)
	peer.Endpoint = endpoint(natAddr, first)
	want := device.Config{ListenPort: hubAddr.Port(), Peers: []device.PeerConfig{peer}}
	hub.setconf(want)
	b.configureClient(hub.key.Public())
	up, down := b.flows(t)
	every := time.NewTicker(time.Second)
	defer every.Stop()
	const seconds = 5
	for i := range seconds {
		b.rebind(i + 1)
		<-every.C
		hub.setconf(want) // replace_peers
	}
	reports := netns.StopAll(up, down)
	t.Logf("naive hub, client to hub: %v", reports[0])
	t.Logf("naive hub, hub to client: %v, %d rebinds, %d re-applies", reports[1], seconds, seconds)
	if len(reports[0].Lost) == 0 {
		t.Error("the control loses nothing: the tests beside it show nothing")
	}
}
