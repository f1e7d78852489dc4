//go:build linux

package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Ports are taken from below 32768, where Linux begins to take those of outgoing
// connections. Else a client could be given the port of an API server that is stopped for a
// while, even by connecting to it: the two ends of a TCP connection may be one.
const firstPort, lastPort = 20000, 32000

// freePort returns a TCP port that nobody listens on at the address.
func freePort(address netip.Addr) (netip.AddrPort, error) {
	var err error
	for range 100 {
		at := netip.AddrPortFrom(address, uint16(firstPort+rand.IntN(lastPort-firstPort)))
		var l net.Listener
		if l, err = net.Listen("tcp", at.String()); err == nil {
			return at, l.Close()
		}
	}
	return netip.AddrPort{}, fmt.Errorf("find a free port at %s: %w", address, err)
}
