package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A Resolver turns the name of an endpoint into addresses. Resolve is called from several
// goroutines at once, never while a device is being changed, and must return when ctx ends.
type Resolver interface {
	Resolve(ctx context.Context, host string) (Answer, error)
}

// Answer is what a name stands for.
type Answer struct {
	Addrs []netip.Addr  // IPv4 and IPv6, in the order to try
	TTL   time.Duration // how long it holds; 0: not known, a minute is assumed
}

// HostResolver asks as the host is set up to ask: hosts file, resolv.conf with search list
// and options, TCP when an answer is cut short. It starts no process and needs no cgo. The
// zero value is ready.
type HostResolver struct {
	server string // tests ask here instead; "": as the host is set up
}

// Resolve returns all A and AAAA records and the shortest time to live that the servers
// gave with them.
func (h HostResolver) Resolve(ctx context.Context, host string) (Answer, error) {
	seen := ttlSniffer{server: h.server}
	r := net.Resolver{PreferGo: true, Dial: seen.dial}
	addrs, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return Answer{}, err
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return Answer{Addrs: addrs, TTL: seen.shortest()}, nil
}

// ttlSniffer reads along what DNS servers answer: package net keeps no time to live.
type ttlSniffer struct {
	server string // instead of those that are asked for; "": those
	mu     sync.Mutex
	ttl    time.Duration
}

func (s *ttlSniffer) shortest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}

func (s *ttlSniffer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.server != "" {
		address = s.server
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UDPConn); ok {
		return &sniffedUDP{u, s}, nil
	}
	return &sniffedTCP{Conn: c, sniffer: s}, nil
}

// answer notes the TTLs of one message; what does not parse tells nothing.
func (s *ttlSniffer) answer(message []byte) {
	var p dnsmessage.Parser
	if _, err := p.Start(message); err != nil {
		return
	}
	if err := p.SkipAllQuestions(); err != nil {
		return
	}
	for {
		h, err := p.AnswerHeader()
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		s.note(time.Duration(h.TTL) * time.Second)
	}
}

func (s *ttlSniffer) note(ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttl == 0 || ttl < s.ttl {
		s.ttl = max(ttl, time.Second)
	}
}

// sniffedUDP stays a net.PacketConn, by which package net knows that messages have no
// length prefix (RFC 1035, section 4.2.1).
type sniffedUDP struct {
	*net.UDPConn
	sniffer *ttlSniffer
}

func (c *sniffedUDP) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if err == nil {
		c.sniffer.answer(b[:n])
	}
	return n, err
}

// sniffedTCP gathers the stream: two bytes of length, then the message (RFC 1035, 4.2.2).
type sniffedTCP struct {
	net.Conn
	sniffer *ttlSniffer
	stream  []byte
}

func (c *sniffedTCP) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.stream = append(c.stream, b[:n]...)
	for len(c.stream) >= 2 {
		end := 2 + int(c.stream[0])<<8 + int(c.stream[1])
		if len(c.stream) < end {
			break
		}
		c.sniffer.answer(c.stream[2:end])
		c.stream = c.stream[end:]
	}
	return n, err
}

// usable drops what cannot be an endpoint. A resolver that hands out nothing but such
// addresses lies: an ad blocker's 0.0.0.0, a captive portal's loopback.
func usable(a Answer, host string) ([]netip.Addr, error) {
	local := host == "localhost" || strings.HasSuffix(host, ".localhost")
	var good []netip.Addr
	for _, addr := range a.Addrs {
		addr = addr.Unmap()
		switch {
		case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr == broadcast:
		case addr.IsLoopback() && !local:
		default:
			good = append(good, addr)
		}
	}
	if len(good) > 0 {
		return good, nil
	}
	if len(a.Addrs) == 0 {
		return nil, errors.New("the answer holds no address")
	}
	return nil, fmt.Errorf("the answer %v holds no address that a peer could have", a.Addrs)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
