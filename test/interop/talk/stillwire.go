package talk

import (
	"context"
	"net"
	"net/netip"

	"github.com/stillwire/stillwire/netstack"
)

// Stillwire is the stack of a netstack.Net.
func Stillwire(n *netstack.Net) Stack {
	return Stack{
		Dial:      n.DialContext,
		ListenTCP: func(a *net.TCPAddr) (net.Listener, error) { return n.ListenTCP(a) },
		ListenUDP: func(a *net.UDPAddr) (net.PacketConn, error) { return n.ListenUDP(a) },
		Ping: func(ctx context.Context, addr netip.Addr) error {
			_, err := n.Ping(ctx, addr)
			return err
		},
	}
}
