package scan

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

// Fault is what is wrong with a value.
type Fault struct {
	Detail string // what is wrong: "is not a port"
	Remedy string // what to write instead
}

// Bad is a Fault.
func Bad(detail, remedy string) *Fault { return &Fault{detail, remedy} }

// The MTU of a tunnel: IPv4 hosts take packets of 576 bytes (RFC 791), and 80 bytes of 65535
// are WireGuard's and the outer headers'.
const (
	MinMTU = 576
	MaxMTU = 65535 - 80
)

// How long a location or UID may be: as long as a name in Kubernetes.
const (
	maxName  = 253
	maxWords = maxName
)

// Words reads one short line of text, such as a location.
func Words(s string) (string, *Fault) {
	if len(s) > maxWords || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return "", Bad("is not one short line of text", fmt.Sprintf("write at most %d printable characters", maxWords))
	}
	return s, nil
}

// Name reads the name of an object, a DNS subdomain (RFC 1123).
func Name(s string) (string, *Fault) {
	if !IsName(s) {
		if len(s) > maxName {
			return "", Bad("is too long", fmt.Sprintf("write at most %d characters", maxName))
		}
		return "", Bad("is no name of an object", "write lower case letters, digits, - and ., such as node-1.example")
	}
	return s, nil
}

// Bool reads true or false.
func Bool(s string) (bool, *Fault) {
	if s != "true" && s != "false" {
		return false, Bad("is neither true nor false", "write true or false")
	}
	return s == "true", nil
}

// Endpoint reads host:port, the host an IP address or a DNS name.
func Endpoint(s string) (device.Endpoint, *Fault) {
	e, err := device.ParseEndpoint(s)
	if err == nil {
		return e, nil
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the text, which the problem shows
	}
	what, _, _ := strings.Cut(err.Error(), ": ")
	return e, Bad(what, "write host:port, such as 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820")
}

// AddrPort reads an address with a port that is not 0.
func AddrPort(s string) (netip.AddrPort, *Fault) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
		return netip.AddrPort{}, Bad("is not an address with a port", "write 192.0.2.1:51820 or [2001:db8::1]:51820")
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// Addr reads an IP address without a zone.
func Addr(s string) (netip.Addr, *Fault) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, Bad("is not an IP address", "write one such as 10.0.0.1 or fd00::1")
	}
	return a.Unmap(), nil
}

// Prefix reads a CIDR, or an address alone as wg(8) does. Host bits are ignored.
func Prefix(s string) (netip.Prefix, *Fault) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, Bad("is not a CIDR", "write one such as 10.0.0.0/24 or fd00::/64")
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// Keepalive reads whole seconds, with or without their unit. UAPI has 16 bits for them.
func Keepalive(s string) (time.Duration, *Fault) {
	bad := Bad("is not whole seconds from 0 to 65535", "write seconds, such as 25, or leave it out")
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

// Port reads a port; 0 says that none is given.
func Port(s string) (uint16, *Fault) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, Bad("is not a port", "write a number from 1 to 65535")
	}
	return uint16(n), nil
}

// MTU reads an MTU in bytes; 0 says that none is given.
func MTU(s string) (int, *Fault) {
	n, err := strconv.Atoi(s)
	if err != nil || n != 0 && (n < MinMTU || n > MaxMTU) {
		return 0, Bad("is not an MTU", fmt.Sprintf("write a number from %d to %d, or leave it out", MinMTU, MaxMTU))
	}
	return n, nil
}

// Count reads a number from 0 up.
func Count(s string) (uint64, *Fault) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, Bad("is not a number", "write a number from 0 up")
	}
	return n, nil
}

// Time reads a moment (RFC 3339).
func Time(s string) (time.Time, *Fault) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, Bad("is not a time", "write it as 2026-01-02T15:04:05Z (RFC 3339), or leave it out")
	}
	return t.UTC(), nil
}

// PublicKey reads a public key in base64. A fault never shows it: it may be a private one.
func PublicKey(s string) (device.PublicKey, *Fault) {
	k, err := device.ParsePublicKey(s)
	if err == nil && k.IsZero() {
		err = errors.New("all zero bytes")
	}
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), ": ")
		return device.PublicKey{}, Bad("is "+what, "write the 44 characters that wg pubkey prints")
	}
	return k, nil
}

// OneOf reads one of the words.
func OneOf[T ~string](words ...T) func(string) (T, *Fault) {
	return func(s string) (T, *Fault) {
		if slices.Contains(words, T(s)) {
			return T(s), nil
		}
		var all []string
		for _, w := range words {
			all = append(all, string(w))
		}
		return "", Bad("is not known", Meant(s, all))
	}
}

// Mode reads how a node carries packets.
func Mode(s string) (mesh.Mode, *Fault) { return OneOf(mesh.TUN, mesh.Netstack)(s) }

// Topology reads which nodes have a tunnel between them.
func Topology(s string) (mesh.Topology, *Fault) {
	return OneOf(mesh.Full, mesh.ByLocation, mesh.Cross)(s)
}

// Encapsulation reads how packets travel inside a location.
func Encapsulation(s string) (mesh.Encapsulation, *Fault) {
	return OneOf(mesh.Native, mesh.VXLAN, mesh.IPIP, mesh.Geneve, mesh.Encrypted)(s)
}
