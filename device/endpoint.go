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

// ParseEndpoint reads "192.0.2.1:51820", "[2001:db8::1]:51820" or "name.example:51820" and,
// as wg(8) does, an IPv6 address without brackets: the last colon parts it from the port.
func ParseEndpoint(s string) (Endpoint, error) {
	e, err := parseEndpoint(s)
	if err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %q %w", s, err)
	}
	return e, nil
}

// parseEndpoint returns an error that says what is wrong and leaves it to the caller, who
// knows whether it may be shown, to name the text.
func parseEndpoint(s string) (Endpoint, error) {
	host, port, err := splitEndpoint(strings.TrimSpace(s))
	if err != nil {
		return Endpoint{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Endpoint{}, errors.New("has a port that is not a number from 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if !isZone(addr.Zone()) {
			return Endpoint{}, errors.New("has a zone that is no interface name")
		}
		return Endpoint{addr.Unmap().String(), uint16(n)}, nil
	}
	if err := checkName(host); err != nil {
		return Endpoint{}, fmt.Errorf("has a host that %w", err)
	}
	return Endpoint{strings.ToLower(host), uint16(n)}, nil
}

func splitEndpoint(s string) (host, port string, err error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, port, ok = strings.Cut(inner, "]:")
		if !ok {
			return "", "", errors.New("has no port after the bracket: write [2001:db8::1]:51820")
		}
		return host, port, nil
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", errors.New("has no port: write 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820")
	}
	return s[:i], s[i+1:], nil
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
// Its error continues "a host that …".
func checkName(name string) error {
	trimmed := strings.TrimSuffix(name, ".")
	if trimmed == "" || len(trimmed) > 253 {
		return errNoName
	}
	numeric := true
	for label := range strings.SplitSeq(trimmed, ".") {
		if !isLabel(label) {
			return errNoName
		}
		numeric = numeric && strings.Trim(label, "0123456789") == ""
	}
	if numeric {
		return errors.New("looks like an IPv4 address but is none")
	}
	return nil
}

var errNoName = errors.New("is neither an IP address nor a DNS name")

// isZone accepts what Linux lets people call an interface, less what would end a line, a
// list or a value in a wg-quick file.
func isZone(zone string) bool {
	return len(zone) <= 15 && !strings.ContainsFunc(zone, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune("#;,\"'`%[]/", c)
	})
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
