package device

import (
	"sync/atomic"
	"testing"
	"time"

	wg "golang.zx2c4.com/wireguard/device"

	"github.com/stillwire/stillwire/device/devicetest"
)

// Two sides that speak first at once: wireguard-go can take the answer to its own initiation
// after it has answered the other's, and then has a session in which it hears nothing.
func TestCrossedHandshakeIsMadeAnew(t *testing.T) {
	const sendsInitiation = "%v - Sending handshake initiation"
	const sendsResponse, cannotRespond = "%v - Sending handshake response", "%v - Failed to create response message: %v"
	const getsResponse, noSession = "%v - Received handshake response", "%v - Failed to derive keypair: %v"
	for _, tt := range []struct {
		name  string
		lines []string // of wireguard-go's log
		want  int64    // handshakes begun
	}{
		{"response taken after one was sent", []string{sendsInitiation, sendsResponse, getsResponse}, 1},
		{"response taken after one was sent, and an initiation after that", []string{sendsResponse, sendsInitiation, getsResponse}, 0},
		{"response taken before one was sent, for nothing", []string{sendsInitiation, getsResponse, sendsResponse, noSession}, 1},
		{"response taken", []string{sendsInitiation, getsResponse}, 0},
		{"response taken before one was made", []string{sendsInitiation, sendsResponse, cannotRespond, getsResponse}, 0},
		{"response taken before one was made, told late", []string{sendsInitiation, sendsResponse, getsResponse, cannotRespond}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *devicetest.Network) {
				a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
				b.apply(t, b.config(a.asPeer("", 0)))
				a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
				exchange(t, a, b, 1, 10)
				if a.log.count("Received handshake response") != 1 || b.log.count("Sending handshake response") != 1 {
					t.Fatal("wireguard-go has other words for a handshake: the tracker must learn them")
				}
				var initiations atomic.Int64
				net.Tap(func(d devicetest.Datagram) devicetest.Verdict {
					if d.Payload[0] == 1 {
						initiations.Add(1)
					}
					return devicetest.Pass
				})
				for _, line := range tt.lines {
					a.tracker.logger().Verbosef(line, a.model.peers[b.key.Public()].wg, nil)
				}
				pass(time.Second)
				if got := initiations.Load(); got != tt.want {
					t.Errorf("%d handshakes within a second, want %d", got, tt.want)
				}
				exchange(t, a, b, 11, 20)
			})
		})
	}
}

// Handshakes that cross again and again are made anew ever later.
func TestCrossingsBackOff(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		pass(time.Second)
		peer := a.model.peers[b.key.Public()].wg
		cross := func() {
			a.tracker.logger().Verbosef("%v - Sending handshake response", peer)
			a.tracker.logger().Verbosef("%v - Received handshake response", peer)
		}
		var initiations atomic.Int64
		net.Tap(func(d devicetest.Datagram) devicetest.Verdict {
			if d.Payload[0] == 1 {
				initiations.Add(1)
				cross()
			}
			return devicetest.Drop
		})
		cross()
		pass(20 * time.Second)
		if got := initiations.Load(); got < 5 || got > 12 {
			t.Errorf("%d handshakes in 20 s", got)
		}
	})
}

// A handshake that renews a session may cross too. Where the session goes on, no packet shall
// wait for another handshake; where nothing is heard any more, one is made.
func TestCrossedRenewalLeavesASessionThatWorks(t *testing.T) {
	for _, tt := range []struct {
		name string
		deaf bool
		want bool // a handshake
	}{{"session works", false, false}, {"nothing is heard", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *devicetest.Network) {
				host := net.Host("192.0.2.2")
				a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, host, "10.9.0.2", 2)
				b.apply(t, b.config(a.asPeer("", 0)))
				a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
				exchange(t, a, b, 1, 10)
				pass(time.Minute)
				var initiations atomic.Int64
				net.Tap(func(d devicetest.Datagram) devicetest.Verdict {
					switch {
					case d.Payload[0] == 1:
						initiations.Add(1)
					case d.From == host && tt.deaf && initiations.Load() == 0:
						return devicetest.Drop
					}
					return devicetest.Pass
				})
				for _, line := range []string{"%v - Sending handshake initiation", "%v - Sending handshake response", "%v - Received handshake response"} {
					a.tracker.logger().Verbosef(line, a.model.peers[b.key.Public()].wg)
				}
				for seq := range uint64(100) {
					a.send(t, b, 11+seq)
					b.send(t, a, 11+seq)
					pass(10 * time.Millisecond)
				}
				if got := initiations.Load() > 0; got != tt.want {
					t.Errorf("%d handshakes", initiations.Load())
				}
				mustHave(t, b, 11, 110)
				if !tt.deaf {
					mustHave(t, a, 11, 110)
				}
			})
		})
	}
}

// Each side's initiation arrives while the other's is under way, so each gives up its own,
// and nobody may speak in the sessions that they answer with. On their own, both would try
// again after 5 s.
func TestBothSidesSpeakFirstAtOnce(t *testing.T) {
	const near, smallerKey, largerKey = 7, 3, 4 // by their public keys
	for _, tt := range []struct {
		name  string
		far   byte
		plain bool // wireguard-go as it is
	}{
		{"beside a Device with a smaller key", smallerKey, false},
		{"beside a Device with a larger key", largerKey, false},
		{"beside wireguard-go with a smaller key", smallerKey, true},
		{"beside wireguard-go with a larger key", largerKey, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *devicetest.Network) {
				open := newNode
				if tt.plain {
					open = newPlainNode
				}
				a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", near), open(t, net.Host("192.0.2.2"), "10.9.0.2", tt.far)
				if smaller := b.key.Public().Compare(a.key.Public()) < 0; smaller != (tt.far == smallerKey) {
					t.Fatal("the keys are not what the test says")
				}
				a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
				b.apply(t, b.config(a.asPeer("192.0.2.1:51820", 0)))
				a.send(t, b, 1)
				b.send(t, a, 1)
				pass(1500 * time.Millisecond)
				mustHave(t, a, 1, 1)
				mustHave(t, b, 1, 1)
			})
		})
	}
}

// newPlainNode is newNode with a supervisor that is told nothing: it does what wireguard-go
// does.
func newPlainNode(t *testing.T, h *devicetest.Host, addr string, key byte, edit ...func(*Options)) *node {
	return newNode(t, h, addr, key, append(edit, func(o *Options) { o.Bind = plainBind{o.Bind.(*devicetest.Bind)} })...)
}

// plainBind keeps what is logged from everybody.
type plainBind struct{ *devicetest.Bind }

func (b plainBind) WrapLogger(*wg.Logger) *wg.Logger { return devicetest.Logger(nil) }
