package device

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// OpKind says what an Op does.
type OpKind string

// The operations that exist. None of them replaces a list or re-creates a peer.
const (
	OpSetPrivateKey   OpKind = "set_private_key"
	OpSetListenPort   OpKind = "set_listen_port"
	OpSetFwMark       OpKind = "set_fwmark"
	OpAddPeer         OpKind = "add_peer"
	OpSetPresharedKey OpKind = "set_preshared_key"
	OpSetEndpoint     OpKind = "set_endpoint"
	OpSetKeepalive    OpKind = "set_keepalive"
	OpAddAllowedIP    OpKind = "add_allowed_ip"
	OpRemoveAllowedIP OpKind = "remove_allowed_ip"
	OpRemovePeer      OpKind = "remove_peer"
)

// Op is one operation on a device: a few lines of UAPI text. Only the fields that its kind
// needs are set.
type Op struct {
	Kind OpKind
	Peer PublicKey // zero for the device itself
	Name string    // the peer's name
	// Source is the object that asked for it, "" when it asks by no longer being there.
	Source string

	PrivateKey   PrivateKey    // OpSetPrivateKey
	ListenPort   uint16        // OpSetListenPort; 0: one that the system chooses
	FwMark       uint32        // OpSetFwMark
	PresharedKey PresharedKey  // OpAddPeer, OpSetPresharedKey
	Endpoint     Endpoint      // OpAddPeer, OpSetEndpoint: as declared
	Keepalive    time.Duration // OpAddPeer, OpSetKeepalive
	Prefix       netip.Prefix  // OpAddAllowedIP, OpRemoveAllowedIP
	From         PublicKey     // OpAddAllowedIP: the peer that loses Prefix by it; zero: nobody

	old string // the value before, as people read it
}

// anotherPort has the system choose a port.
func anotherPort(have uint16) Op {
	return Op{Kind: OpSetListenPort, old: strconv.Itoa(int(have))}
}

// Change is one difference between what a device was and what it is now, as an operator
// reads it. Secrets are "(redacted)".
type Change struct {
	Peer  PublicKey `json:"peer"` // zero for the device itself
	Name  string    `json:"name,omitempty"`
	Field string    `json:"field"` // peer, allowed_ips, endpoint, keepalive, preshared_key, private_key, listen_port, fwmark
	Old   string    `json:"old"`   // "": there was none
	New   string    `json:"new"`   // "": there is none now
	Cause string    `json:"cause,omitempty"`
}

// String is one line: what, old, new, cause.
func (c Change) String() string {
	var b strings.Builder
	if c.Peer.IsZero() {
		b.WriteString("device")
	} else {
		fmt.Fprintf(&b, "peer %s", c.Peer.Short())
		if c.Name != "" {
			fmt.Fprintf(&b, " (%s)", c.Name)
		}
	}
	fmt.Fprintf(&b, ": %s: %s", c.Field, c.Difference())
	if c.Cause != "" {
		fmt.Fprintf(&b, " [%s]", c.Cause)
	}
	return b.String()
}

// Difference is what String says of Old and New: "off -> 25s". A change of allowed IPs is of
// one among them: "+10.1.0.0/16", "-10.1.0.0/16", or "+10.1.0.0/16 from peer xTIBA5rb…".
func (c Change) Difference() string {
	switch {
	case c.Field != fieldAllowedIPs:
		return orNone(c.Old) + " -> " + orNone(c.New)
	case c.New == "":
		return "-" + c.Old
	case c.Old == "":
		return "+" + c.New
	}
	return "+" + c.New + " from " + strings.TrimPrefix(c.Old, c.New+" of ")
}

const fieldAllowedIPs = "allowed_ips"

// Changes explains operations. The prefixes of a new peer are told with the peer.
func Changes(ops []Op) []Change {
	var out []Change
	added := make(map[PublicKey]int)
	for _, op := range ops {
		if i, isNew := added[op.Peer]; isNew && op.Kind == OpAddAllowedIP && op.From.IsZero() {
			out[i].New += " " + op.Prefix.String()
			continue
		}
		if op.Kind == OpAddPeer {
			added[op.Peer] = len(out)
		}
		out = append(out, op.change())
	}
	return out
}

func (op Op) change() Change {
	c := Change{Peer: op.Peer, Name: op.Name, Old: op.old, Cause: op.Source}
	switch op.Kind {
	case OpSetPrivateKey:
		c.Field, c.New = "private_key", op.PrivateKey.String()
	case OpSetListenPort:
		c.Field, c.New = "listen_port", strconv.Itoa(int(op.ListenPort))
	case OpSetFwMark:
		c.Field, c.New = "fwmark", markText(op.FwMark)
	case OpAddPeer:
		c.Field, c.New = "peer", peerText(op.Endpoint, op.Keepalive, !op.PresharedKey.IsZero(), nil)
	case OpSetPresharedKey:
		c.Field, c.New = "preshared_key", op.PresharedKey.String()
	case OpSetEndpoint:
		c.Field, c.New = "endpoint", op.Endpoint.String()
	case OpSetKeepalive:
		c.Field, c.New = "keepalive", keepaliveText(op.Keepalive)
	case OpAddAllowedIP:
		c.Field, c.New = fieldAllowedIPs, op.Prefix.String()
	case OpRemoveAllowedIP:
		c.Field, c.Old = fieldAllowedIPs, op.Prefix.String()
	case OpRemovePeer:
		c.Field = "peer"
	}
	return c
}

// appendUAPI renders operations as the body of a UAPI "set". Consecutive operations on one
// peer share its public_key line. address resolves what AddPeer and SetEndpoint write: an
// invalid address writes no line. See https://www.wireguard.com/xplatform/.
func appendUAPI(b []byte, ops []Op, address func(Op) netip.AddrPort) []byte {
	var current PublicKey
	for _, op := range ops {
		if !op.Peer.IsZero() && (op.Peer != current || op.Kind == OpAddPeer) {
			current = op.Peer
			b = fmt.Appendf(b, "public_key=%s\n", op.Peer.Hex())
			if op.Kind != OpAddPeer {
				b = append(b, "update_only=true\n"...)
			}
		}
		b = op.appendUAPI(b, address)
	}
	return b
}

func (op Op) appendUAPI(b []byte, address func(Op) netip.AddrPort) []byte {
	switch op.Kind {
	case OpSetPrivateKey:
		return appendSecret(b, "private_key", op.PrivateKey.secret)
	case OpSetListenPort:
		return fmt.Appendf(b, "listen_port=%d\n", op.ListenPort)
	case OpSetFwMark:
		return fmt.Appendf(b, "fwmark=%d\n", op.FwMark)
	case OpAddPeer:
		if !op.PresharedKey.IsZero() {
			b = appendSecret(b, "preshared_key", op.PresharedKey.secret)
		}
		b = appendEndpoint(b, address(op))
		if op.Keepalive > 0 {
			b = appendKeepalive(b, op.Keepalive)
		}
		return b
	case OpSetPresharedKey:
		return appendSecret(b, "preshared_key", op.PresharedKey.secret)
	case OpSetEndpoint:
		return appendEndpoint(b, address(op))
	case OpSetKeepalive:
		return appendKeepalive(b, op.Keepalive)
	case OpAddAllowedIP:
		return fmt.Appendf(b, "allowed_ip=%s\n", op.Prefix)
	case OpRemoveAllowedIP:
		return fmt.Appendf(b, "allowed_ip=-%s\n", op.Prefix)
	case OpRemovePeer:
		return append(b, "remove=true\n"...)
	}
	panic("device: unknown operation " + string(op.Kind))
}

func appendSecret(b []byte, key string, s secret) []byte {
	value := s.value()
	return fmt.Appendf(b, "%s=%x\n", key, value[:])
}

func appendEndpoint(b []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return b
	}
	return fmt.Appendf(b, "endpoint=%s\n", a)
}

func appendKeepalive(b []byte, d time.Duration) []byte {
	return fmt.Appendf(b, "persistent_keepalive_interval=%d\n", int(d/time.Second))
}

// peerText tells a whole peer in one line.
func peerText(endpoint Endpoint, keepalive time.Duration, psk bool, allowed []netip.Prefix) string {
	parts := []string{"endpoint=" + orNone(endpoint.String())}
	if keepalive > 0 {
		parts = append(parts, "keepalive="+keepaliveText(keepalive))
	}
	if psk {
		parts = append(parts, "preshared_key="+redacted)
	}
	parts = append(parts, "allowed_ips:")
	for _, p := range allowed {
		parts = append(parts, p.String())
	}
	return strings.Join(parts, " ")
}

func keepaliveText(d time.Duration) string {
	if d == 0 {
		return "off"
	}
	return d.String()
}

func markText(mark uint32) string {
	if mark == 0 {
		return "off"
	}
	return fmt.Sprintf("0x%x", mark)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
