package file

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// The MTU of a tunnel: IPv4 hosts take packets of 576 bytes (RFC 791), and 80 bytes of 65535
// are WireGuard's and the outer headers'.
const (
	minMTU = 576
	maxMTU = 65535 - 80
)

// How long a location or UID may be: as long as a name in Kubernetes.
const (
	maxName  = 253
	maxWords = maxName
)

func words(s string) (string, *fault) {
	if len(s) > maxWords || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return "", &fault{"is not one short line of text", fmt.Sprintf("write at most %d printable characters", maxWords)}
	}
	return s, nil
}

func objectName(s string) (string, *fault) {
	if !isName(s) {
		if len(s) > maxName {
			return "", &fault{"is too long", fmt.Sprintf("write at most %d characters", maxName)}
		}
		return "", &fault{"is no name of an object", "write lower case letters, digits, - and ., such as node-1.example"}
	}
	return s, nil
}

func boolean(s string) (bool, *fault) {
	if s != "true" && s != "false" {
		return false, &fault{"is neither true nor false", "write true or false"}
	}
	return s == "true", nil
}

func endpoint(s string) (device.Endpoint, *fault) {
	e, err := device.ParseEndpoint(s)
	if err == nil {
		return e, nil
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the text, which the problem shows
	}
	what, _, _ := strings.Cut(err.Error(), ": ")
	return e, &fault{what, "write host:port, such as 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820"}
}

func addrPort(s string) (netip.AddrPort, *fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
		return netip.AddrPort{}, &fault{"is not an address with a port", "write 192.0.2.1:51820 or [2001:db8::1]:51820"}
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

func address(s string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, &fault{"is not an IP address", "write one such as 10.0.0.1 or fd00::1"}
	}
	return a.Unmap(), nil
}

// prefix reads a CIDR, or an address alone as wg(8) does. Host bits are ignored.
func prefix(s string) (netip.Prefix, *fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, &fault{"is not a CIDR", "write one such as 10.0.0.0/24 or fd00::/64"}
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// keepalive reads whole seconds, with or without their unit. UAPI has 16 bits for them.
func keepalive(s string) (time.Duration, *fault) {
	bad := &fault{"is not whole seconds from 0 to 65535", "write seconds, such as 25, or leave it out"}
	if s == "off" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, bare := strconv.ParseUint(s, 10, 16); bare == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 || d > 65535*time.Second || d%time.Second != 0 {
		return 0, bad
	}
	return d, nil
}

func port(s string) (uint16, *fault) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, &fault{"is not a port", "write a number from 1 to 65535"}
	}
	return uint16(n), nil
}

func mtu(s string) (int, *fault) {
	n, err := strconv.Atoi(s)
	if err != nil || n != 0 && (n < minMTU || n > maxMTU) {
		return 0, &fault{"is not an MTU", fmt.Sprintf("write a number from %d to %d, or leave it out", minMTU, maxMTU)}
	}
	return n, nil
}

func count(s string) (uint64, *fault) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, &fault{"is not a number", "write a number from 0 up"}
	}
	return n, nil
}

func moment(s string) (time.Time, *fault) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, &fault{"is not a time", "write it as 2026-01-02T15:04:05Z (RFC 3339), or leave it out"}
	}
	return t.UTC(), nil
}

func publicKey(s string) (device.PublicKey, *fault) {
	k, err := device.ParsePublicKey(s)
	if err == nil && k.IsZero() {
		err = errors.New("all zero bytes")
	}
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), ": ")
		return device.PublicKey{}, &fault{"is " + what, "write the 44 characters that wg pubkey prints"}
	}
	return k, nil
}

// oneOf reads one of the words.
func oneOf[T ~string](words ...T) func(string) (T, *fault) {
	return func(s string) (T, *fault) {
		if slices.Contains(words, T(s)) {
			return T(s), nil
		}
		var all []string
		for _, w := range words {
			all = append(all, string(w))
		}
		return "", &fault{"is not known", meant(s, all)}
	}
}

func mode(s string) (mesh.Mode, *fault) { return oneOf(mesh.TUN, mesh.Netstack)(s) }

func topology(s string) (mesh.Topology, *fault) {
	return oneOf(mesh.Full, mesh.ByLocation, mesh.Cross)(s)
}

func encapsulation(s string) (mesh.Encapsulation, *fault) {
	return oneOf(mesh.Native, mesh.VXLAN, mesh.IPIP, mesh.Geneve, mesh.Encrypted)(s)
}
