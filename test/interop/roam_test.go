//go:build linux

package interop

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stillwire/stillwire/test/netns"
)

// The topology is that of tun_test.go. One machine gets a new address on its cable, as a
// laptop does that changes networks, while numbered packets go both ways:
//
//	near 192.0.2.1 ───────── far 192.0.2.2
//	near 192.0.2.1 ───────── far 192.0.2.12     far has moved: near follows
//	near 192.0.2.11 ──────── far 192.0.2.12     near has moved: upstream follows
func TestRoamingIsFollowedBothWays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		outer   outer
		newFar  string
		newNear string
		bits    string
	}{
		{"IPv4 outside", outer4, "192.0.2.12", "192.0.2.11", "/24"},
		{"IPv6 outside", outer6, "2001:db8::12", "2001:db8::11", "/64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newTunnel(t, tt.outer, nil)
			flows := p.flows(t, 500, p.directions()...)
			before := p.node.settled(p.peer.key.Public()).LastHandshake

			var dark []netns.Window
			begun := time.Now()
			p.far.AddAddrs("near", tt.newFar+tt.bits)
			p.far.IP("addr del " + tt.outer.far.String() + tt.bits + " dev near")
			ended := time.Now()
			await(t, 20*time.Second, func() error {
				return p.node.follows(p.peer.key.Public(), func(at netip.AddrPort) bool { return at.Addr().String() == tt.newFar })
			})
			settle(t, flows)
			dark = append(dark, darkWindow(t, begun, ended, flows...))

			begun = time.Now()
			p.near.AddAddrs("far", tt.newNear+tt.bits)
			p.near.IP("addr del " + tt.outer.near.String() + tt.bits + " dev far")
			ended = time.Now()
			await(t, 20*time.Second, func() error {
				if at := p.peer.endpoint(p.node.key.Public()); at.Addr().String() != tt.newNear {
					return errors.New("upstream has us at " + at.String())
				}
				return nil
			})
			settle(t, flows)
			dark = append(dark, darkWindow(t, begun, ended, flows...))
			for i, r := range netns.StopAll(flows...) {
				t.Logf("%s: %v", p.directions()[i].name, r)
				if lost := r.LostOutside(dark...); lost != nil {
					t.Errorf("%s: lost %d that no move explains: %v", p.directions()[i].name, len(lost), lost)
				}
			}
			if after := p.node.peer(p.peer.key.Public()); after.LastHandshake != before {
				t.Error("a move took a handshake")
			}
			if ops := p.node.operations("Updating endpoint"); len(ops) != 1 {
				t.Errorf("%d endpoint writes, want the first alone: %v", len(ops), ops)
			}
		})
	}
}

// Near's way out has no address for a moment, as when IPv6 addresses change and the new one may
// not be used yet. All that the kernel has left for a source is the tunnel's own address, where
// far would look for near in its own tunnel until the session is dead.
func TestAWayOutWithoutAnAddressDoesNotMoveNearIntoTheTunnel(t *testing.T) {
	t.Parallel()
	p := newTunnel(t, outer6, nil)
	flows := p.flows(t, 500, p.directions()...)
	before := p.node.settled(p.peer.key.Public()).LastHandshake
	p.near.IP("route add 2001:db8::/64 dev far metric 2000")

	begun := time.Now()
	p.near.IP("addr del 2001:db8::1/64 dev far")
	awaitSent(t, 200, flows)
	p.near.AddAddrs("far", "2001:db8::1/64")
	ended := time.Now()
	settle(t, flows)
	dark := darkWindow(t, begun, ended, flows...)
	for i, r := range netns.StopAll(flows...) {
		t.Logf("%s: %v", p.directions()[i].name, r)
		if len(r.Lost) == 0 {
			t.Errorf("%s: nothing is lost: the test tests nothing", p.directions()[i].name)
		}
		if lost := r.LostOutside(dark); lost != nil {
			t.Errorf("%s: lost %d that the want of an address does not explain: %v", p.directions()[i].name, len(lost), lost)
		}
	}
	if at := p.peer.endpoint(p.node.key.Public()); at.Addr() != outer6.near {
		t.Errorf("upstream has us at %v", at)
	}
	if after := p.node.peer(p.peer.key.Public()); after.LastHandshake != before {
		t.Error("it took a handshake")
	}
}

// awaitSent waits until each flow has sent so many more, all at once: one after the other would
// keep the network as it is for as many times as long.
func awaitSent(t *testing.T, more int, flows []*netns.Flow) {
	t.Helper()
	errs := make([]error, len(flows))
	var all sync.WaitGroup
	for i, f := range flows {
		all.Go(func() { errs[i] = f.AwaitSent(t.Context(), more) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// settle has a packet arrive that was sent from now on, in every flow.
func settle(t *testing.T, flows []*netns.Flow) {
	t.Helper()
	for _, f := range flows {
		if err := f.AwaitArrival(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.AwaitSent(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
}
