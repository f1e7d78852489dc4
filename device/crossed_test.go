package device

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device/devicetest"
)

// Two sides that speak first at once: wireguard-go can take the answer to its own initiation
// after it has answered the other's, and then has a session in which it hears nothing.
func TestCrossedHandshakeIsMadeAnew(t *testing.T) {
	const sendsResponse, getsResponse, sendsInitiation = "%v - Sending handshake response", "%v - Received handshake response", "%v - Sending handshake initiation"
	for _, tt := range []struct {
		name  string
		lines []string // of wireguard-go's log
		want  int64    // handshakes begun
	}{
		{"response taken after one was sent", []string{sendsInitiation, sendsResponse, getsResponse}, 1},
		{"response taken after one was sent, and an initiation after that", []string{sendsResponse, sendsInitiation, getsResponse}, 0},
		{"response taken", []string{sendsInitiation, getsResponse}, 0},
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
					a.tracker.logger().Verbosef(line, a.model.peers[b.key.Public()].wg)
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
