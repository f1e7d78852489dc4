package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// CheckListen is the rule of closed by default: it returns nil for an address on which a
// proxy or forward may listen, and an error with the remedy for one that others could reach
// although neither a credential is asked for nor open says that this is meant.
//
// Loopback addresses in each of their spellings, localhost, and unix sockets ("unix:PATH" or
// a path with a slash) are always fine. Every other name may become any address, and a
// missing host is all of them. An address that is not HOST:PORT is an error in any case.
func CheckListen(address string, hasCredential, open bool) error {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "/") || strings.HasPrefix(address, "./") {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen address %q is not HOST:PORT: write 127.0.0.1:1080, [::1]:1080 or unix:/path", address)
	}
	if hasCredential || open || isLoopback(host) {
		return nil
	}
	return fmt.Errorf("listen address %q can be reached by others, who could then use the tunnel: listen on %s, ask for a user and password, or say that it shall be open",
		address, net.JoinHostPort("127.0.0.1", port))
}

func isLoopback(host string) bool {
	if name := strings.ToLower(strings.TrimSuffix(host, ".")); name == "localhost" {
		return true // RFC 6761, section 6.3
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().WithZone("").IsLoopback()
}
