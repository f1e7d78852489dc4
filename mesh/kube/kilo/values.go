package kilo

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/stillwire/stillwire/device"
)

// parsePrefix reads an address with a mask, and keeps its host bits. The length may begin with
// zeros.
func parsePrefix(text string) (netip.Prefix, bool) {
	address, length, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	bits, err := strconv.ParseUint(length, 10, 8)
	if err != nil || int(bits) > a.BitLen() {
		return netip.Prefix{}, false
	}
	if a.Is4In6() {
		return netip.PrefixFrom(a.Unmap(), max(0, int(bits)-96)), true
	}
	return netip.PrefixFrom(a, int(bits)), true
}

// names are those of RFC 1123, in small letters, as Kubernetes has them.
var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// longestName is how long a name in the DNS may be (RFC 1035).
const longestName = 253

// parseEndpoint reads an address or a name with a port.
func parseEndpoint(text string) (device.Endpoint, bool) {
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return device.Endpoint{}, false
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return device.Endpoint{}, false
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return device.Endpoint{Host: a.Unmap().String(), Port: uint16(port)}, true
	}
	if len(host) > longestName || !names.MatchString(host) {
		return device.Endpoint{}, false
	}
	return device.Endpoint{Host: host, Port: uint16(port)}, true
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// isPublic is Kilo's idea of it: all but the private IPv4 ranges of RFC 1918, and fd00::/16.
func isPublic(e device.Endpoint) bool {
	a, err := netip.ParseAddr(e.Host)
	if err != nil {
		return false
	}
	if a.Is4() {
		return !a.IsPrivate()
	}
	b := a.As16()
	return b[0] != 0xfd || b[1] != 0
}
