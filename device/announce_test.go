package device

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device/devicetest"
)

// Who only sends learns of a port only from a packet that comes from it.
func TestChangedPortIsToldToPeers(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		config := a.config(b.asPeer("192.0.2.2:51820", 0))
		a.apply(t, config)
		exchange(t, a, b, 1, 10)
		seq := uint64(10)
		push := func(n int) {
			for range n {
				seq++
				b.send(t, a, seq)
				pass(10 * time.Millisecond)
			}
		}
		push(100)
		config.ListenPort = 51999
		a.apply(t, config)
		push(3000)
		if lost := a.tally.Missing(11, seq); len(lost) > 1 { // what is under way then
			t.Errorf("%d of %d packets lost, from %d to %d", len(lost), seq-10, lost[0], lost[len(lost)-1])
		}
	})
}

func TestPortIsToldToThoseWithASessionAtAPace(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		const sessions = 3 * announceBurst
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
		config := a.config(idlePeers(10)...) // without a session
		for i := range sessions {
			addr := fmt.Sprintf("192.0.2.%d", i+2)
			b := newNode(t, net.Host(addr), fmt.Sprintf("10.9.1.%d", i), 2)
			b.key = newPrivateKey([KeyLen]byte{1: 16, 2: byte(i), 31: 64})
			b.apply(t, b.config(a.asPeer("", 0)))
			config.Peers = append(config.Peers, b.asPeer(addr+":51820", 0))
		}
		a.apply(t, config)
		for _, p := range config.Peers[10:] {
			if err := a.Reach(t.Context(), p.AllowedIPs[0].Addr()); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second)
		var told atomic.Int64
		start := time.Now()
		net.Tap(func(d devicetest.Datagram) devicetest.Verdict {
			if d.Src == netip.MustParseAddrPort("192.0.2.1:51999") {
				told.Add(1)
				if n := told.Load(); n > announceBurst*(1+int64(time.Since(start)/greetPace)) {
					t.Errorf("%d packets after %v", n, time.Since(start))
				}
			}
			return devicetest.Pass
		})
		config.ListenPort = 51999
		a.apply(t, config)
		pass(time.Second)
		if got := told.Load(); got != sessions {
			t.Errorf("%d packets told of the new port, want one to each of %d peers", got, sessions)
		}
	})
}
