package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device/devicetest"
)

// A new initiation voids the answer to the one before, so many who wait must not send more of
// them than one does.
func TestReachOfManyCallersCallsAsOneWould(t *testing.T) {
	type outcome struct {
		took        time.Duration
		initiations int64
	}
	for _, lost := range []time.Duration{500 * time.Millisecond, 2500 * time.Millisecond, 30 * time.Second} {
		for _, stagger := range []time.Duration{0, 7 * time.Millisecond} {
			t.Run(fmt.Sprintf("initiations lost for %v, callers %v apart", lost, stagger), func(t *testing.T) {
				one := outcome{}
				for _, callers := range []int{1, 10, 200} {
					bubble(t, func(t *testing.T, net *devicetest.Network) {
						a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
						b.apply(t, b.config(a.asPeer("", 0)))
						var initiations atomic.Int64
						start := time.Now()
						net.Tap(func(d devicetest.Datagram) devicetest.Verdict {
							if d.Payload[0] != 1 {
								return devicetest.Pass
							}
							initiations.Add(1)
							if time.Since(start) < lost {
								return devicetest.Drop
							}
							return devicetest.Pass
						})
						a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
						var wg sync.WaitGroup
						for range callers {
							wg.Go(func() {
								if err := a.Reach(t.Context(), b.addr); err != nil {
									t.Error(err)
								}
							})
							<-time.After(stagger)
						}
						wg.Wait()
						got := outcome{time.Since(start), initiations.Load()}
						if callers == 1 {
							one = got
						}
						if got.initiations > one.initiations+1 || got.took > max(one.took, 200*stagger)+time.Second {
							t.Errorf("%d callers: %d initiations in %v; one caller: %d in %v", callers, got.initiations, got.took, one.initiations, one.took)
						}
					})
				}
			})
		}
	}
}

// Who comes when nobody has waited for long finds patience as short as the first one did.
func TestReachIsImpatientAnew(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := a.Reach(ctx, b.addr); err == nil {
			t.Fatal("reached nobody")
		}
		b.apply(t, b.config(a.asPeer("", 0)))
		start := time.Now()
		if err := a.Reach(t.Context(), b.addr); err != nil || time.Since(start) > 1500*time.Millisecond {
			t.Errorf("reached after %v, %v", time.Since(start), err)
		}
	})
}

func TestReachEndsWithItsContextDuringAChange(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		peer := b.asPeer("192.0.2.2:51820", 0)
		a.apply(t, a.config(peer))
		peer.Name = "bob"
		a.apply(t, a.config(peer))
		if err := a.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Second, a.release)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := a.Reach(ctx, b.addr)
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("a context of 10 ms ended Reach after %v", d)
		}
		var he *HandshakeError
		if !errors.As(err, &he) || he.Name != "bob" || he.Endpoint.String() != "192.0.2.2:51820" {
			t.Errorf("error %v does not tell name and endpoint", err)
		}
		pass(10 * time.Second)
	})
}
