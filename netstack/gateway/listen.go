package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// maxSocketPath is what fits into sockaddr_un with its closing zero on Linux.
const maxSocketPath = 107

// Listen is where a service listens: a TCP or UDP address, or a unix stream socket. It is
// comparable.
type Listen struct {
	Network string         // "tcp", "udp" or "unix"
	Addr    netip.AddrPort // of tcp and udp; for a publish an invalid Addr means every address of the tunnel
	Path    string         // of unix, absolute
}

// String returns the form people write: "127.0.0.1:1080", "unix:/run/x.sock", ":8080".
func (l Listen) String() string {
	switch {
	case l.Network == "":
		return ""
	case l.Network == "unix":
		return "unix:" + l.Path
	case !l.Addr.Addr().IsValid():
		return ":" + strconv.Itoa(int(l.Addr.Port()))
	}
	return l.Addr.String()
}

// IsZero reports whether no listener is asked for.
func (l Listen) IsZero() bool { return l == Listen{} }

// MarshalText returns String.
func (l Listen) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// beyond reports whether other machines can reach the listener.
func (l Listen) beyond() bool {
	return !l.IsZero() && l.Network != "unix" && !l.Addr.Addr().Unmap().IsLoopback()
}

// clashes reports whether the system would refuse to open both: the same port on the same
// address, or on one address and all of them.
func (l Listen) clashes(other Listen) bool {
	if l.Network != other.Network {
		return false
	}
	if l.Network == "unix" {
		return absolute(l.Path) == absolute(other.Path)
	}
	if l.Addr.Port() != other.Addr.Port() || l.Addr.Port() == 0 {
		return false
	}
	a, b := l.Addr.Addr().Unmap(), other.Addr.Addr().Unmap()
	return a == b || covers(a, b) || covers(b, a)
}

// absolute is a path as this process would find it.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // there is no working folder
}

// covers reports whether listening on all is listening on one too. A [::] socket of Linux
// takes IPv4 as well.
func covers(all, one netip.Addr) bool {
	return !all.IsValid() || all == netip.IPv6Unspecified() || all.IsUnspecified() && one.Is4()
}

// parseListen reads a listener on this machine. A port alone means loopback: "1080",
// ":1080" and "localhost:1080" are 127.0.0.1:1080. "*:1080" is every address, of both
// families. A unix path that is not absolute is taken from dir.
func parseListen(network, dir, s string) (Listen, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if network == "udp" {
			return Listen{}, errors.New("is a stream socket and cannot carry UDP: write ADDRESS:PORT")
		}
		return parseSocketPath(dir, path)
	}
	if filepath.IsAbs(s) {
		return Listen{}, errors.New("is a path: write unix:" + s + " for a socket there")
	}
	if wireproxy := strings.SplitN(s, "/", 2); len(wireproxy) == 2 && isNetwork(wireproxy[0]) {
		return Listen{}, errors.New("carries TCP and no other: write " + wireproxy[1])
	}
	host, port, err := splitHostPort(s)
	if err != nil {
		return Listen{}, err
	}
	addr, err := listenAddr(host)
	if err != nil {
		return Listen{}, err
	}
	return Listen{Network: network, Addr: netip.AddrPortFrom(addr, port)}, nil
}

func parseSocketPath(dir, path string) (Listen, error) {
	switch {
	case path == "":
		return Listen{}, errors.New("has no path: write unix:/run/stillwire/NAME.sock")
	case strings.HasPrefix(path, "@"):
		return Listen{}, errors.New("is an abstract socket, which any user could open: write a path")
	case !filepath.IsAbs(path):
		path = filepath.Join(dir, path)
	}
	path = filepath.Clean(path)
	if len(path) > maxSocketPath {
		return Listen{}, fmt.Errorf("is %d bytes long and a unix socket can have %d: choose a shorter path", len(path), maxSocketPath)
	}
	return Listen{Network: "unix", Path: path}, nil
}

// splitHostPort takes "port", ":port" and "host:port".
func splitHostPort(s string) (host string, port uint16, err error) {
	digits := s
	if _, err := netip.ParseAddr(s); err != nil && strings.ContainsRune(s, ':') {
		if host, digits, err = net.SplitHostPort(s); err != nil {
			return "", 0, errors.New("is not ADDRESS:PORT: write 127.0.0.1:1080, [::1]:1080 or unix:/path")
		}
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		return "", 0, errors.New("has no port: add one, such as " + netip.AddrPortFrom(addr, 1080).String())
	}
	if digits == s && strings.Trim(s, "0123456789") != "" {
		return "", 0, errors.New("is not ADDRESS:PORT: write 127.0.0.1:1080, 1080 or unix:/path")
	}
	port, err = parsePort(digits, 0)
	return host, port, err
}

// parsePort reads a port from least up, and says of what is wrong what it is.
func parsePort(s string, least uint16) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	switch {
	case err == nil && n >= uint64(least):
		return uint16(n), nil
	case s == "":
		return 0, errors.New("has no port: write one after the colon")
	case strings.Trim(s, "0123456789") == "":
		return 0, fmt.Errorf("has the port %s: ports are numbers from %d to 65535", s, least)
	}
	return 0, fmt.Errorf("has %q where the port belongs: write a number from %d to 65535", s, least)
}

func listenAddr(host string) (netip.Addr, error) {
	switch strings.ToLower(host) {
	case "", "localhost":
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	case "*":
		return netip.IPv6Unspecified(), nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, errors.New("names a host: a listener needs an IP address, localhost, or * for all")
	}
	return addr.Unmap(), nil
}

// parseInside reads where a publish listens inside the tunnel: "8080" is that port on every
// address of the tunnel, "10.0.0.2:8080" on one of them.
func parseInside(network, s string) (Listen, error) {
	host, port, err := splitHostPort(s)
	if err != nil {
		return Listen{}, errors.New("is not a port of the tunnel: write 8080 or 10.0.0.2:8080")
	}
	if port == 0 {
		return Listen{}, errors.New("is port 0: peers need a port from 1 to 65535 that they know")
	}
	l := Listen{Network: network, Addr: netip.AddrPortFrom(netip.Addr{}, port)}
	if host == "" || host == "*" {
		return l, nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return Listen{}, errors.New("names a host: write a port, or an address of the tunnel and a port")
	}
	if !addr.IsUnspecified() {
		l.Addr = netip.AddrPortFrom(addr.Unmap(), port)
	}
	return l, nil
}

// parseTarget checks where a flow goes: an IP address or a DNS name, and a port.
func parseTarget(s string) (string, error) {
	if strings.HasPrefix(s, "unix:") {
		return "", errors.New("is a unix socket, where only a publish of TCP can end: write HOST:PORT")
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", errors.New("is not HOST:PORT: write 10.0.0.5:5432, [fd00::5]:5432 or name.example:5432")
	}
	n, err := parsePort(port, 1)
	if err != nil {
		return "", err
	}
	if err := checkHost(host); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(n))), nil
}

// checkHost refuses what no resolver could take, so that a slip of the pen is seen at
// load and not at the first flow.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	bad := name == "" || len(name) > 253 || strings.Trim(name, "0123456789.") == ""
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63
	}
	if bad || strings.ContainsFunc(name, notInName) {
		return fmt.Errorf("has no host: %q is neither an IP address nor a DNS name", host)
	}
	return nil
}

func notInName(r rune) bool {
	alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !alnum && r != '-' && r != '_' && r != '.'
}

// targetHost returns the address in a target, or an invalid one when it is a name or a
// unix path.
func targetHost(target string) netip.Addr {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap()
}
