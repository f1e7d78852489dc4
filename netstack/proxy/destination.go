package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// destination is where a client wants to go: an address, or a name that only the dialer may
// resolve.
type destination struct {
	addr netip.Addr // without zone; invalid when there is a name
	name string
	port uint16
}

func (d destination) String() string {
	host := d.name
	if d.addr.IsValid() {
		host = d.addr.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(d.port)))
}

func (d destination) addrPort() netip.AddrPort { return netip.AddrPortFrom(d.addr, d.port) }

var errName = errors.New("is neither a host name nor an IP address")

// namedDestination takes the name field of a request. Clients put addresses there too.
func namedDestination(name string, port uint16) (destination, error) {
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil && addr.Zone() == "" {
		return destination{addr: addr.Unmap(), port: port}, nil
	}
	if name == "" || strings.ContainsFunc(name, notInName) {
		return destination{}, fmt.Errorf("%q %w", name, errName)
	}
	return destination{name: name, port: port}, nil
}

// notInName finds what would change the meaning of HOST:PORT, a URL or a log line. What else
// a name may be made of is for the resolver to say.
func notInName(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`:/\@%[]?#"`, r) }

// hostPort splits HOST:PORT into a destination. defaultPort is for a host alone; 0: the port
// must be there.
func hostPort(s string, defaultPort uint16) (destination, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil && defaultPort != 0 {
		host, port, err = s, strconv.Itoa(int(defaultPort)), nil
	}
	if err != nil {
		return destination{}, fmt.Errorf("%q is not HOST:PORT", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return destination{}, fmt.Errorf("%q has no port: %q is not a number from 1 to 65535", s, port)
	}
	return namedDestination(host, uint16(n))
}
