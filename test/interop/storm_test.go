//go:build linux

package interop

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/test/netns"
)

const storm = 1000 // Apply calls

// The topology is that of tun_test.go. Numbered packets go both ways in both families, and a
// TCP connection with them, while near is told a thousand times what it shall be.
func TestAThousandAppliesUnderTrafficLoseNothing(t *testing.T) {
	p := newTunnel(t, outer4, func(p *tunnel) {
		psk := newPresharedKey(t)
		p.nearConf.Peers[0].PresharedKey, p.farConf.Peers[0].PresharedKey = psk, psk
		p.nearConf.Peers[0].PersistentKeepalive = 25 * time.Second
	})
	flows := p.flows(t, 500, p.directions()...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stream sync.WaitGroup
	stream.Go(func() {
		r, err := netns.Exchange(ctx, p.near, p.far, netip.AddrPortFrom(far4, 7001), 0, 1<<20)
		if err != nil {
			t.Errorf("TCP: %v", err)
		}
		t.Logf("TCP: %v", r)
	})
	defer stream.Wait()
	before := p.node.settled(p.peer.key.Public())
	operations := len(p.node.operations("UAPI: "))

	others := newOthers(t, 4)
	changes := 0
	for i := range storm {
		want := others.config(p.nearConf, i)
		changes += len(p.node.apply(want))
		if i%100 != 0 {
			continue
		}
		if again := p.node.apply(want); len(again) != 0 {
			t.Fatalf("applied again, config %d changes %v", i, again)
		}
	}
	after := p.node.peer(p.peer.key.Public())
	cancel()
	if after.LastHandshake != before.LastHandshake {
		t.Errorf("a handshake was needed: %v, before %v", after.LastHandshake, before.LastHandshake)
	}
	if ops := p.node.operations("Updating endpoint"); len(ops) != 1 {
		t.Errorf("endpoint writes: %v", ops)
	}
	for _, words := range []string{"Removing all peers", "Removing all allowedips", "Updating listen port", "Updating private key"} {
		if ops := p.node.operations(words); len(ops) > 1 {
			t.Errorf("operations that cost packets: %v", ops)
		}
	}
	t.Logf("%d applies, %d changes, %d operations", storm, changes, len(p.node.operations("UAPI: "))-operations)
	for i, r := range netns.StopAll(flows...) {
		t.Logf("%s: %v", p.directions()[i].name, r)
		if len(r.Lost) > 0 || r.Doubled > 0 {
			t.Errorf("%s: %v: %v", p.directions()[i].name, r, r.Lost)
		}
	}
}

// others are peers that come and go beside the one that carries the traffic.
type others struct{ peers []device.PeerConfig }

func newOthers(t *testing.T, n int) (o others) {
	t.Helper()
	for i := range n {
		p := device.PeerConfig{
			PublicKey:  newKey(t).Public(),
			AllowedIPs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 100+i))},
		}
		if i%2 == 0 {
			p.PresharedKey = newPresharedKey(t)
		}
		o.peers = append(o.peers, p)
	}
	return o
}

// config is the i-th of a row in which each differs from the one before, but for every
// fourth, and the peer that is live differs too: prefixes, keepalive, never its key.
func (o others) config(base device.Config, i int) device.Config {
	i -= i / 4
	live := base.Peers[0]
	live.PersistentKeepalive = time.Duration(20+i%5) * time.Second
	for j := range i % 7 {
		live.AllowedIPs = append(live.AllowedIPs[:len(live.AllowedIPs):len(live.AllowedIPs)], netip.MustParsePrefix(fmt.Sprintf("10.200.%d.0/24", j)))
	}
	peers := []device.PeerConfig{live}
	for j, p := range o.peers {
		if (i+j)%3 == 0 {
			continue
		}
		if j == i%len(o.peers) { // takes a wider prefix over the live peer's, and one of its
			p.AllowedIPs = append(p.AllowedIPs[:1:1], netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("10.200.99.0/24"))
		}
		peers = append(peers, p)
	}
	if i%2 == 0 {
		base.FwMark = 0x77
	}
	base.Peers = peers
	return base
}
