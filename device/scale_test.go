package device

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device/devicetest"
)

// idlePeers are peers whose keys nobody holds: all they need is to be configured.
func idlePeers(n int) []PeerConfig {
	peers := make([]PeerConfig, n)
	for i := range peers {
		var k PublicKey
		binary.BigEndian.PutUint32(k[:], uint32(i+1))
		k[31] = 9
		addr := netip.AddrFrom4([4]byte{10, 100 + byte(i>>16), byte(i >> 8), byte(i)})
		peers[i] = PeerConfig{PublicKey: k, AllowedIPs: []netip.Prefix{netip.PrefixFrom(addr, 32)}}
	}
	return peers
}

func TestSetPeersTouchesOnlyTheGiven(t *testing.T) {
	net := devicetest.NewNetwork(devicetest.Options{})
	defer net.Close()
	a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
	peers := idlePeers(3)
	a.apply(t, a.config(peers...))
	before := a.operations()

	one := peers[1]
	one.PersistentKeepalive = 25 * time.Second
	changes, err := a.SetPeers(t.Context(), one)
	want := []Change{{Peer: one.PublicKey, Field: "keepalive", Old: "off", New: "25s"}}
	if diff := cmp.Diff(want, changes); err != nil || diff != "" {
		t.Errorf("error %v, changes (-want +got):\n%s", err, diff)
	}
	if got := a.operations() - before; got != 1 {
		t.Errorf("%d operations for one change", got)
	}

	thief := PeerConfig{PublicKey: testPeer(80), AllowedIPs: peers[2].AllowedIPs}
	if _, err := a.SetPeers(t.Context(), thief); err == nil {
		t.Error("a prefix was taken from a peer that is not given")
	}
	loser := peers[2]
	loser.AllowedIPs = nil
	if _, err := a.SetPeers(t.Context(), thief, loser); err != nil {
		t.Errorf("prefix given over in one call: %v", err)
	}
	gone := peers[0].PublicKey
	if changes, err := a.RemovePeers(t.Context(), gone, testPeer(88), gone); err != nil || len(changes) != 1 {
		t.Errorf("removal of one peer that is there, twice, and one that is not: %v, %v", changes, err)
	}
	end := a.config(one, loser, thief)
	end.ListenPort = 0
	if plan, err := a.Plan(end); err != nil || len(plan) > 0 {
		t.Errorf("what is left differs: %v, %v", plan, err)
	}
}

func TestChangesOfOthersLoseNothing(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		peer := b.asPeer("192.0.2.2:51820", 0)
		a.apply(t, a.config(peer))
		others := idlePeers(100)
		before := a.peerState(t, b)
		for i := range uint64(200) {
			peer.AllowedIPs = prefixes("10.9.0.2/32", fmt.Sprintf("10.8.%d.0/24", i))
			peer.PersistentKeepalive = time.Duration(i%30) * time.Second
			a.apply(t, a.config(append(slices.Clone(others[i%50:50+i%50]), peer)...))
			exchange(t, a, b, i+1, i+1)
		}
		after := a.peerState(t, b)
		if after.Endpoint != before.Endpoint {
			t.Errorf("endpoint moved from %v to %v", before.Endpoint, after.Endpoint)
		}
	})
}

// To know one live address the whole device is read, under the lock.
func TestSupervisorLeavesTheDeviceToOthers(t *testing.T) {
	net := devicetest.NewNetwork(devicetest.Options{})
	defer net.Close()
	a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.Log = o.Log.Level(zerolog.WarnLevel) })
	peers := idlePeers(3000)
	peers[0].Endpoint = Endpoint{Host: "192.0.2.77", Port: 51820}
	a.apply(t, a.config(peers...))
	peer := a.model.peers[peers[0].PublicKey]
	var held, looks int
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < time.Second; <-tick.C {
		a.tracker.logger().Verbosef("%v - Handshake did not complete after 5 seconds, retrying (try %d)", peer.wg, 2)
		looks++
		select {
		case a.lock <- struct{}{}:
			peer.path.heard = true
			a.release()
		default:
			held++
		}
	}
	if held > looks/2 {
		t.Errorf("the supervisor had the lock at %d of %d looks", held, looks)
	}
}

// BenchmarkOneChange is the cost of one change on a device with that many peers.
func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			net := devicetest.NewNetwork(devicetest.Options{})
			defer net.Close()
			d, err := Open(Options{TUN: devicetest.NewTUN(1420), Bind: net.Host("192.0.2.1").Bind()})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			peers := idlePeers(n)
			if _, err := d.Apply(b.Context(), Config{PrivateKey: testKey(8), Peers: peers}); err != nil {
				b.Fatal(err)
			}
			one := peers[n/2]
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				one.PersistentKeepalive = time.Duration(i%2) * time.Second
				if _, err := d.SetPeers(b.Context(), one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSameAgain is the cost of a reconcile that finds nothing.
func BenchmarkSameAgain(b *testing.B) {
	net := devicetest.NewNetwork(devicetest.Options{})
	defer net.Close()
	d, err := Open(Options{TUN: devicetest.NewTUN(1420), Bind: net.Host("192.0.2.1").Bind()})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	c := Config{PrivateKey: testKey(8), Peers: idlePeers(10_000)}
	if _, err := d.Apply(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := d.Apply(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
