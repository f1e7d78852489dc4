//go:build !linux

package device

import (
	"net/netip"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// bindBatch is how many datagrams one call moves.
const bindBatch = 1

// kernel is what a Bind asks of the system. Tests put faults in.
type kernel struct{ listenUDP listenFunc }

func systemKernel() kernel { return kernel{listenUDP: listenUDP} }

func (kernel) listen(l *bindLine, at netip.AddrPort) (udpSocket, error) { return newPlainSocket(l, at) }

func (kernel) watchRoutes(*atomic.Uint32, zerolog.Logger) *routeWatch { return nil }

// routeWatch is nil: the system chooses the source address of each datagram.
type routeWatch struct{}

func (*routeWatch) confirm(*udpEndpoint) bool { return true }
func (*routeWatch) generation() uint64        { return 0 }
func (*routeWatch) close()                    {}

// wireEndpoint is an endpoint as the system calls take it; the net package encodes it itself.
type wireEndpoint struct{}

func (wireEndpoint) encode(dst netip.AddrPort, _ netip.Addr, _ uint32) error {
	_, err := zoneIndex(dst.Addr().Zone())
	return err
}
