package device

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The MTU of a tunnel: IPv4 hosts take packets of 576 bytes (RFC 791), IPv6 needs 1280
// (RFC 8200), and 80 bytes of 65535 are WireGuard's and the outer headers'.
const (
	minMTU     = 576
	minIPv6MTU = 1280
	maxMTU     = 65535 - 80
)

// ignored lists a line of [Interface] that is not obeyed. Nothing is taken from the
// environment for it.
func (t *quickText) ignored(l quickLine, e entry) bool {
	text := plainValue(l.value)
	if text == "" && canonical(e.key, vainKeys) != "" {
		return true
	}
	switch e.key {
	case "PreUp", "PostUp", "PreDown", "PostDown":
		t.ignore(e, programIn(l.value), "is not run: hooks never are")
	case "Table":
		t.ignore(e, text, "is not obeyed: no routes are set from this file")
	case "SaveConfig":
		t.ignore(e, text, "is not obeyed: this file is never written")
	case "CheckAlive", "CheckAliveInterval":
		t.ignore(e, text, "is not obeyed: whether a peer is alive is told by its handshakes")
	case "IncludedApplications", "ExcludedApplications":
		t.ignore(e, text, "is not obeyed: only the app for Android knows applications")
	default:
		return false
	}
	return true
}

// programIn is all that is told of a hook, whose arguments may hold a secret.
func programIn(hook string) string {
	fields := strings.Fields(wgValue(hook))
	if len(fields) == 0 {
		return ""
	}
	if strings.ContainsAny(fields[0], "=:@$") || len(fields) == 1 {
		return strings.SplitN(fields[0], "=", 2)[0]
	}
	return fields[0] + " …"
}

// readInterface obeys one line of [Interface]. Blank values are as good as no line.
func (t *quickText) readInterface(e entry) {
	t.file.Where[e.key] = e.place.String()
	c := &t.file.Config
	switch e.key {
	case "PrivateKey", "PrivateKeyFile":
		if text, ok := t.secretText(e); ok {
			t.once(t.given, e)
			c.PrivateKey = t.privateKey(e, text)
		}
	case "ListenPort":
		if n, ok := t.number(e, 0, 65535); ok {
			t.once(t.given, e)
			c.ListenPort = uint16(n)
		}
	case "FwMark":
		if mark, ok := t.mark(e); ok {
			t.once(t.given, e)
			c.FwMark = mark
		}
	case "MTU":
		t.readMTU(e)
	case "Address":
		t.readAddresses(e)
	case "DNS":
		t.readDNS(e)
	}
}

// readPeer obeys one line of [Peer].
func (t *quickText) readPeer(e entry) {
	p := t.peer
	switch e.key {
	case "PublicKey":
		t.once(p.given, e)
		p.PublicKey = t.publicKey(e)
	case "PresharedKey", "PresharedKeyFile":
		if text, ok := t.secretText(e); ok {
			t.once(p.given, e)
			p.PresharedKey = t.presharedKey(e, text)
		}
	case "Endpoint":
		t.readEndpoint(e)
	case "PersistentKeepalive":
		if strings.EqualFold(e.value, "off") {
			e.value = "0"
		}
		if n, ok := t.number(e, 0, 65535); ok {
			t.once(p.given, e)
			p.PersistentKeepalive = time.Duration(n) * time.Second
		}
	case "AllowedIPs":
		t.readAllowedIPs(e)
	}
}

// once notes where a key stands, and warns when it stood before: the last one counts. The
// key and its …File are one.
func (q *quickReader) once(given map[string]entry, e entry) {
	key := strings.TrimSuffix(e.key, "File")
	if before, again := given[key]; again {
		q.warn(e, e.value, fmt.Sprintf("is given at %s too: this line has it", before.from(e.place)))
	}
	given[key] = e
}

// secretText returns the text of a key, which stands in the line or in the file it names.
// A blank line is as good as none, but for the private key, without which nothing works.
func (t *quickText) secretText(e entry) (string, bool) {
	name, isFile := strings.CutSuffix(e.key, "File")
	if e.value == "" && isFile {
		t.bad(e, "", "is empty: name the file that holds the key")
		return "", false
	}
	if e.value == "" && name == "PrivateKey" {
		t.bad(e, "", "is empty: put the key here, or name its file with PrivateKeyFile")
		return "", false
	}
	if isFile {
		return t.keyFile(e)
	}
	if e.env == "" && e.value != "" && t.secret.key == "" {
		t.secret = e
	}
	return withoutSpace(e.value), e.value != ""
}

func (t *quickText) keyFile(e entry) (string, bool) {
	f, err := t.open(t.resolved(e.value))
	if err != nil {
		t.bad(e, e.value, "cannot be read: "+cause(err))
		return "", false
	}
	defer f.Close()
	b, err := readAtMost(f, maxKeyFile)
	if err != nil {
		t.bad(e, e.value, "cannot be read: "+cause(err))
		return "", false
	}
	if len(b) > maxKeyFile {
		t.bad(e, e.value, "is too large to be a file with one key")
		return "", false
	}
	if mode := modeOf(f); tooOpen(mode) {
		t.warn(e, e.value, fmt.Sprintf("can be changed or read by others, as it has mode %04o: run chmod 600 on it", mode))
	}
	return strings.TrimSpace(string(b)), true
}

func (t *quickText) privateKey(e entry, text string) PrivateKey {
	k, err := ParsePrivateKey(text)
	if err == nil && k.IsZero() {
		err = errors.New("all zero bytes: make one with wg genkey")
	}
	if err != nil {
		t.bad(e, e.value, keyFault(e, err))
	}
	return k
}

func (t *quickText) presharedKey(e entry, text string) PresharedKey {
	k, err := ParsePresharedKey(text)
	if err != nil {
		t.bad(e, e.value, keyFault(e, err))
	}
	return k
}

func (t *quickText) publicKey(e entry) PublicKey {
	k, err := ParsePublicKey(withoutSpace(e.value))
	switch {
	case e.value == "":
		err = errors.New("empty: put the peer's public key here")
	case err == nil && k.IsZero():
		err = errors.New("all zero bytes: ask the peer for its key")
	}
	if err != nil {
		t.bad(e, e.value, keyFault(e, err))
	}
	return k
}

func keyFault(e entry, err error) string {
	if strings.HasSuffix(e.key, "File") {
		return "holds what is " + err.Error()
	}
	return "is " + err.Error()
}

// number reads digits, and false for a blank line.
func (t *quickText) number(e entry, low, high uint64) (uint64, bool) {
	text := withoutSpace(e.value)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < low || n > high {
		t.bad(e, e.value, fmt.Sprintf("is not a number from %d to %d", low, high))
		return 0, false
	}
	return n, true
}

// mark reads decimal, hexadecimal after 0x, or off.
func (t *quickText) mark(e entry) (uint32, bool) {
	text, base := strings.ToLower(withoutSpace(e.value)), 10
	if text == "" {
		return 0, false
	}
	if text == "off" {
		return 0, true
	}
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		text, base = digits, 16
	}
	n, err := strconv.ParseUint(text, base, 32)
	if err != nil {
		t.bad(e, e.value, "is neither off nor a number from 0 to 0xffffffff")
	}
	return uint32(n), err == nil
}

func (t *quickText) readMTU(e entry) {
	if withoutSpace(e.value) == "0" {
		t.ignore(e, e.value, "is no size: one that fits is chosen")
		return
	}
	if n, ok := t.number(e, minMTU, maxMTU); ok {
		t.once(t.given, e)
		t.file.MTU = int(n)
	}
}

func (t *quickText) readAddresses(e entry) {
	for _, text := range splitList(e.value) {
		p, err := parsePrefix(text)
		if err == nil && (p.Addr().IsUnspecified() || p.Addr().IsMulticast()) {
			err = errors.New("is no address that a host can have")
		}
		switch {
		case err != nil:
			t.bad(e, text, err.Error())
		case slices.Contains(t.file.Addresses, p):
			t.warn(e, text, "is given before: once is enough")
		default:
			t.file.Addresses = append(t.file.Addresses, p)
		}
	}
}

// readDNS tells servers from search domains as wg-quick does.
func (t *quickText) readDNS(e entry) {
	for _, text := range splitList(e.value) {
		addr, err := netip.ParseAddr(text)
		switch {
		case err == nil && isZone(addr.Zone()):
			t.file.DNS = appendNew(t.file.DNS, addr.Unmap())
		case strings.Contains(text, ":") || strings.Trim(text, "0123456789.") == "":
			t.bad(e, text, "is not an IP address: write a server's address alone, without port or scheme")
		case strings.HasPrefix(text, "~"):
			t.ignore(e, text, "is a routing domain of systemd-resolved, not a search domain")
		case checkName(text) != nil:
			t.bad(e, text, "is neither an IP address nor a search domain")
		default:
			t.file.DNSSearch = appendNew(t.file.DNSSearch, strings.ToLower(text))
		}
	}
}

func appendNew[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

func (t *quickText) readEndpoint(e entry) {
	text := withoutSpace(e.value)
	if text == "" {
		return
	}
	endpoint, err := parseEndpoint(text)
	if err != nil {
		t.bad(e, e.value, err.Error())
		return
	}
	t.once(t.peer.given, e)
	t.peer.Endpoint = endpoint
}

func (t *quickText) readAllowedIPs(e entry) {
	t.peer.listed = true
	for item := range strings.SplitSeq(e.value, ",") {
		// wg takes "10. 0.0.0 / 8" for one prefix; people part prefixes by spaces alone too.
		texts := []string{withoutSpace(item)}
		if _, err := parsePrefix(texts[0]); err != nil {
			texts = splitList(item)
		}
		for _, text := range texts {
			t.readAllowedIP(&e, text)
		}
	}
}

func (t *quickText) readAllowedIP(e *entry, text string) {
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		t.bad(*e, text, "changes what was there before, which a file cannot: write the prefix without + or -")
		return
	}
	p, err := parsePrefix(text)
	if err != nil {
		t.bad(*e, text, err.Error())
		return
	}
	if p != p.Masked() {
		t.warn(*e, text, fmt.Sprintf("has bits of a host: %v is meant", p.Masked()))
	}
	t.peer.claims = append(t.peer.claims, claim{p.Masked(), e})
}

var spacedSlash = regexp.MustCompile(`\s*/\s*`)

// splitList takes a list apart at commas and spaces, but for those around a slash.
func splitList(s string) []string {
	return strings.FieldsFunc(spacedSlash.ReplaceAllString(s, "/"), func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
}

// parsePrefix reads an address with or without a length, or with a netmask as ip(8) takes
// it. Host bits are kept; an IPv4 address in IPv6 clothing is IPv4.
func parsePrefix(s string) (netip.Prefix, error) {
	text, length, given := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, errors.New("is not an IP prefix: write 10.0.0.0/24 or 2001:db8::/64")
	}
	n := addr.BitLen()
	if given {
		if n, err = prefixLength(length, addr); err != nil {
			return netip.Prefix{}, err
		}
	}
	if addr.Is4In6() && n >= 96 {
		addr, n = addr.Unmap(), n-96
	}
	return netip.PrefixFrom(addr, n), nil
}

func prefixLength(s string, addr netip.Addr) (int, error) {
	if mask, err := netip.ParseAddr(s); err == nil && mask.Is4() && addr.Is4() {
		b := mask.As4()
		m := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		if ones := bits.LeadingZeros32(^m); m == ^(^uint32(0) >> ones) {
			return ones, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || int(n) > addr.BitLen() {
		return 0, fmt.Errorf("has a prefix length that is not a number from 0 to %d", addr.BitLen())
	}
	return int(n), nil
}
