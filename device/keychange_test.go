package device

import (
	"fmt"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device/devicetest"
)

// wireguard-go locks its identity and a handshake one way when its key changes, and the other way
// round when a response comes in: a device whose key changes while responses come in must not stand
// still for ever.
func TestTheKeyChangesWhileResponsesComeIn(t *testing.T) {
	const far, rounds = 8, 400
	net := devicetest.NewNetwork(devicetest.Options{})
	hub := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
	keys := []PrivateKey{hub.key, testKey(250)}
	var peers []PeerConfig
	var nodes []*node
	for i := range far {
		n := newNode(t, net.Host(fmt.Sprintf("192.0.2.%d", 10+i)), fmt.Sprintf("10.9.0.%d", 10+i), byte(10+i))
		var hubs []PeerConfig
		for k, key := range keys {
			p := hub.asPeer("", 0)
			p.PublicKey = key.Public()
			if k > 0 {
				p.AllowedIPs = nil
			}
			hubs = append(hubs, p)
		}
		n.apply(t, n.config(hubs...))
		nodes = append(nodes, n)
		peers = append(peers, n.asPeer(fmt.Sprintf("192.0.2.%d:51820", 10+i), 0))
	}
	done := make(chan error, 1)
	go func() {
		for round := range rounds {
			config := hub.config(peers...)
			config.PrivateKey = keys[round%2]
			if _, err := hub.Apply(t.Context(), config); err != nil {
				done <- err
				return
			}
			for _, n := range nodes { // each packet calls its peer anew
				if err := hub.tun.Inject(devicetest.Packet(hub.addr, n.addr, uint64(round), 200)); err != nil {
					done <- err
					return
				}
			}
			pauseFor(time.Duration(round%20) * 50 * time.Microsecond) // responses are now here, now there
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the device stands still")
	}
	// It works: the last key has sessions.
	hub.key = keys[(rounds-1)%2]
	for _, n := range nodes {
		if err := hub.Reach(t.Context(), n.addr); err != nil {
			t.Errorf("reach %s: %v", n.addr, err)
		}
	}
}

func pauseFor(d time.Duration) { <-time.After(d) }
