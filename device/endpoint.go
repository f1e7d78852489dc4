package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Endpoint is where a peer is said to be reached: an IP address or a DNS name, and a UDP
// port. It is what an operator declares; see PeerState for what is applied and live. It is
// comparable. The zero value means "none".
type Endpoint struct {
	Host string // IP address (IPv6 without brackets, zone allowed) or DNS name, lower case
	Port uint16 // UDP port, 1 to 65535
}

// ParseEndpoint reads "192.0.2.1:51820", "[2001:db8::1]:51820" or "name.example:51820".
func ParseEndpoint(s string) (Endpoint, error) {
	host, port, err := net.SplitHostPort(strings.TrimSpace(s))
	if err != nil {
		return Endpoint{}, errors.New("not host:port: write 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Endpoint{}, fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return Endpoint{addr.Unmap().String(), uint16(n)}, nil
	}
	if err := checkName(host); err != nil {
		return Endpoint{}, err
	}
	return Endpoint{strings.ToLower(host), uint16(n)}, nil
}

// EndpointFrom returns the endpoint of a plain address.
func EndpointFrom(a netip.AddrPort) Endpoint {
	if !a.IsValid() {
		return Endpoint{}
	}
	return Endpoint{a.Addr().Unmap().String(), a.Port()}
}

// IsZero reports whether no endpoint is set.
func (e Endpoint) IsZero() bool { return e == Endpoint{} }

// AddrPort returns the address, and false when Host is a name that needs a resolver.
func (e Endpoint) AddrPort() (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(e.Host)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), e.Port), true
}

// String returns the form that ParseEndpoint reads, "" when none is set.
func (e Endpoint) String() string {
	if e.IsZero() {
		return ""
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// MarshalText returns String.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what ParseEndpoint reads; empty text is the zero Endpoint.
func (e *Endpoint) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*e = Endpoint{}
		return nil
	}
	*e, err = ParseEndpoint(string(b))
	return err
}

// checkName accepts what RFC 1123 calls a host name, with the underscores that people use.
func checkName(name string) error {
	trimmed := strings.TrimSuffix(name, ".")
	if trimmed == "" || len(trimmed) > 253 {
		return fmt.Errorf("host %q is neither an IP address nor a DNS name", name)
	}
	numeric := true
	for label := range strings.SplitSeq(trimmed, ".") {
		if !isLabel(label) {
			return fmt.Errorf("host %q is neither an IP address nor a DNS name", name)
		}
		numeric = numeric && strings.Trim(label, "0123456789") == ""
	}
	if numeric {
		return fmt.Errorf("host %q looks like an IPv4 address but is none", name)
	}
	return nil
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for _, c := range []byte(label) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
