package netstack

import (
	"context"
	"net"
	"net/netip"

	upstream "golang.zx2c4.com/wireguard/tun/netstack"
)

// upstreamTalker is wireguard-go's own netstack as one side of a conversation.
type upstreamTalker struct{ n *upstream.Net }

func (u upstreamTalker) dialTCP(ctx context.Context, a netip.AddrPort) (halfCloser, error) {
	return u.n.DialContextTCPAddrPort(ctx, a)
}
func (u upstreamTalker) listenTCP(a netip.AddrPort) (net.Listener, error) {
	return u.n.ListenTCPAddrPort(a)
}
func (u upstreamTalker) dialUDP(a netip.AddrPort) (net.Conn, error) {
	return u.n.DialUDPAddrPort(netip.AddrPort{}, a)
}
func (u upstreamTalker) listenUDP(a netip.AddrPort) (net.PacketConn, error) {
	return u.n.ListenUDPAddrPort(a)
}
