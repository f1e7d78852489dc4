package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// What RFC 1928 and RFC 1929 put on the wire.
const (
	socks4Version = 4
	socks5Version = 5
	authVersion   = 1 // of the RFC 1929 exchange

	methodNone         = 0x00
	methodUserPass     = 0x02
	methodUnacceptable = 0xff

	commandConnect   = 1
	commandBind      = 2
	commandAssociate = 3

	addrIPv4 = 1
	addrName = 3
	addrIPv6 = 4
)

// reply is a SOCKS5 reply code (RFC 1928, section 6).
type reply byte

const (
	replySucceeded          reply = 0
	replyFailure            reply = 1
	replyNotAllowed         reply = 2
	replyNetworkUnreachable reply = 3
	replyHostUnreachable    reply = 4
	replyRefused            reply = 5
	replyTTLExpired         reply = 6
	replyCommand            reply = 7
	replyAddressType        reply = 8
)

// replyFor says a reason in SOCKS5. There is no code for a time-out: TTL expired is what
// clients have learnt to read as one. A name that does not resolve is a host that cannot be
// reached.
func replyFor(r Reason) reply {
	switch r {
	case ReasonRefused:
		return replyRefused
	case ReasonNetworkUnreachable:
		return replyNetworkUnreachable
	case ReasonHostUnreachable, ReasonName:
		return replyHostUnreachable
	case ReasonTimeout:
		return replyTTLExpired
	case ReasonPolicy:
		return replyNotAllowed
	case ReasonCommand:
		return replyCommand
	case ReasonAddressType:
		return replyAddressType
	}
	return replyFailure
}

// socksError is what a client said that cannot be served, with the reason.
type socksError struct {
	reason Reason
	detail string
}

func (e *socksError) Error() string { return e.detail }

// socksReason is the reason in err, for an error of the parsers below or of the connection
// that they read.
func socksReason(err error) Reason {
	var bad *socksError
	switch {
	case errors.As(err, &bad):
		return bad.reason
	case isTimeout(err):
		return ReasonHandshake
	}
	return ReasonProtocol
}

// readMethods reads the client's greeting: the authentication methods that it offers.
func readMethods(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return nil, err
	}
	switch {
	case head[0] == socks4Version:
		return nil, &socksError{ReasonSOCKS4, "client speaks SOCKS4: set it to SOCKS5"}
	case head[0] != socks5Version:
		return nil, &socksError{ReasonProtocol, fmt.Sprintf("first byte is 0x%02x, SOCKS5 begins with 0x05", head[0])}
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil {
		return nil, err
	}
	methods := make([]byte, head[1])
	_, err := io.ReadFull(r, methods)
	return methods, err
}

// readUserPass reads a user name and password (RFC 1929). Its errors do not hold them.
func readUserPass(r io.Reader) (user, pass string, err error) {
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return "", "", err
	}
	if version[0] != authVersion {
		return "", "", &socksError{ReasonProtocol, "authentication is not of RFC 1929, version 1"}
	}
	if user, err = readString(r); err != nil {
		return "", "", err
	}
	pass, err = readString(r)
	return user, pass, err
}

// readString reads a byte that says the length, and that many bytes.
func readString(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

// readRequest reads a request: what to do, and with which destination. The command may be
// one that does not exist.
func readRequest(r io.Reader) (command byte, d destination, err error) {
	var head [4]byte // version, command, reserved, address type
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, d, err
	}
	if head[0] != socks5Version {
		return 0, d, &socksError{ReasonProtocol, fmt.Sprintf("request is of version %d, not 5", head[0])}
	}
	d, err = readDestination(r, head[3])
	return head[1], d, err
}

// readDestination reads an address of the type, and a port.
func readDestination(r io.Reader, kind byte) (destination, error) {
	host, err := readHost(r, kind)
	if err != nil {
		return destination{}, err
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return destination{}, err
	}
	n := binary.BigEndian.Uint16(port[:])
	if kind == addrName {
		d, err := namedDestination(string(host), n)
		if err != nil {
			return d, &socksError{ReasonName, err.Error()}
		}
		return d, nil
	}
	addr, _ := netip.AddrFromSlice(host)
	return destination{addr: addr.Unmap(), port: n}, nil
}

func readHost(r io.Reader, kind byte) ([]byte, error) {
	size := 0
	switch kind {
	case addrIPv4:
		size = 4
	case addrIPv6:
		size = 16
	case addrName:
		s, err := readString(r)
		return []byte(s), err
	default:
		return nil, &socksError{ReasonAddressType, fmt.Sprintf("address type %d is not one of RFC 1928", kind)}
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

// appendReply appends a reply to a request. bound is the address that it speaks of, and the
// zero value when there is none.
func appendReply(b []byte, code reply, bound netip.AddrPort) []byte {
	return appendAddrPort(append(b, socks5Version, byte(code), 0), bound)
}

// appendAddrPort appends address type, address and port.
func appendAddrPort(b []byte, a netip.AddrPort) []byte {
	switch addr := a.Addr().Unmap(); {
	case addr.Is4():
		b = append(append(b, addrIPv4), addr.AsSlice()...)
	case addr.Is6():
		b = append(append(b, addrIPv6), addr.AsSlice()...)
	default:
		b = append(b, addrIPv4, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint16(b, a.Port())
}

// maxDatagramHeader is how long the header of a relayed datagram with an address can be.
const maxDatagramHeader = 3 + 1 + 16 + 2

// parseDatagram takes a datagram of a client apart (RFC 1928, section 7). The payload is a
// part of b.
func parseDatagram(b []byte) (d destination, payload []byte, err error) {
	if len(b) < 4 || b[0] != 0 || b[1] != 0 {
		return d, nil, &socksError{ReasonProtocol, "datagram has no SOCKS5 header"}
	}
	if b[2] != 0 {
		return d, nil, &socksError{ReasonFragment, "datagram is a fragment"}
	}
	rest := &sliceReader{b[4:]}
	if d, err = readDestination(rest, b[3]); err != nil {
		return d, nil, err
	}
	return d, rest.b, nil
}

// sliceReader reads a slice and knows what is left.
type sliceReader struct{ b []byte }

func (r *sliceReader) Read(b []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.b)
	r.b = r.b[n:]
	return n, nil
}

// appendDatagramHeader appends the header of a datagram that came from a target.
func appendDatagramHeader(b []byte, from netip.AddrPort) []byte {
	return appendAddrPort(append(b, 0, 0, 0), from)
}

// addrPortOf is the address of a socket, or the zero value when it is not an IP address.
func addrPortOf(a net.Addr) netip.AddrPort {
	var ap netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		ap = a.AddrPort()
	case *net.UDPAddr:
		ap = a.AddrPort()
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
