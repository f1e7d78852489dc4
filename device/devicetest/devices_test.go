package devicetest

import (
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDevicesHandshakeThroughNAT(t *testing.T) {
	for _, kind := range []NATKind{FullCone, RestrictedCone, PortRestrictedCone, Symmetric} {
		synctest.Test(t, func(t *testing.T) {
			n := NewNetwork(Options{Delay: 10 * time.Millisecond})
			t.Cleanup(n.Close)
			nat := n.NAT(netip.MustParseAddr("203.0.113.9"), NATOptions{Kind: kind, Timeout: time.Minute})
			server := newNode(t, n.Host("192.0.2.1"), "10.9.0.1")
			client := newNode(t, nat.Host("10.0.0.2"), "10.9.0.2")
			server.peer(t, client, "", 0)
			client.peer(t, server, "192.0.2.1:51820", 25)

			client.sendTo(t, server, 1, 100)
			pass(time.Second)
			server.sendTo(t, client, 1, 100)
			pass(time.Second)
			if missing := server.tally.Missing(1, 100); missing != nil {
				t.Errorf("kind %d: server missed %v", kind, missing)
			}
			if missing := client.tally.Missing(1, 100); missing != nil {
				t.Errorf("kind %d: client missed %v", kind, missing)
			}

			// the NAT restarts: the client's next packet shows the server the new port
			nat.Rebind()
			client.sendTo(t, server, 101, 101)
			pass(time.Second)
			server.sendTo(t, client, 101, 200)
			pass(time.Second)
			if missing := client.tally.Missing(101, 200); missing != nil {
				t.Errorf("kind %d: client missed %v after the rebind", kind, missing)
			}
		})
	}
	runtime.GC() // finalizers that reach into a bubble would end the process here
	runtime.GC()
}

func TestSilentClientBehindNATIsLostWithoutKeepalive(t *testing.T) {
	for keepalive, want := range map[int]int{0: 0, 25: 1} {
		synctest.Test(t, func(t *testing.T) {
			n := NewNetwork(Options{})
			t.Cleanup(n.Close)
			nat := n.NAT(netip.MustParseAddr("203.0.113.9"), NATOptions{Kind: PortRestrictedCone, Timeout: 30 * time.Second})
			server := newNode(t, n.Host("192.0.2.1"), "10.9.0.1")
			client := newNode(t, nat.Host("10.0.0.2"), "10.9.0.2")
			server.peer(t, client, "", 0)
			client.peer(t, server, "192.0.2.1:51820", keepalive)
			client.sendTo(t, server, 1, 1)
			pass(100 * time.Second)
			server.sendTo(t, client, 1, 1)
			pass(time.Second)
			if diff := cmp.Diff(want, client.tally.Count()); diff != "" {
				t.Errorf("keepalive %d: packets at the client (-want +got):\n%s", keepalive, diff)
			}
		})
	}
}

func TestRemovedPeersAreCollectedWithoutTouchingTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(Options{})
		t.Cleanup(n.Close)
		a, b := newNode(t, n.Host("192.0.2.1"), "10.9.0.1"), newNode(t, n.Host("192.0.2.2"), "10.9.0.2")
		for range 20 {
			a.peer(t, b, "192.0.2.2:51820", 1)
			pass(time.Minute)
			a.set(t, "public_key=%x\nremove=true\n", b.key.PublicKey().Bytes())
			pass(3 * time.Hour) // the peer's stopped timers leave the bubble's heap
			runtime.GC()
		}
	})
}
