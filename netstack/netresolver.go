package netstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/miekg/dns"
)

// NetResolver returns a *net.Resolver that asks the tunnel's servers, for libraries that
// want one and for records other than addresses (LookupTXT, LookupSRV, LookupMX, …). Go's
// resolver reads the host's /etc/hosts and the search list of its /etc/resolv.conf, which
// cannot be turned off: for the addresses of names prefer Resolver itself.
func (r *Resolver) NetResolver() *net.Resolver {
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return &exchangeConn{ctx: ctx, resolver: r}, nil
		},
	}
}

// exchangeConn looks to Go's resolver like a TCP connection to a DNS server. Each query
// written is answered by Resolver.Exchange, which races all servers, when it is read. It is
// used by one goroutine, as Go's resolver does.
type exchangeConn struct {
	ctx      context.Context
	resolver *Resolver
	deadline time.Time
	query    []byte
	answer   bytes.Buffer
}

// Write takes a query, with its length in front (RFC 1035, section 4.2.2).
func (c *exchangeConn) Write(b []byte) (int, error) {
	c.query = append(c.query, b...)
	return len(b), nil
}

// Read gives the answer to the query written, with its length in front.
func (c *exchangeConn) Read(b []byte) (int, error) {
	if c.answer.Len() == 0 {
		if err := c.exchange(); err != nil {
			return 0, err
		}
	}
	return c.answer.Read(b)
}

func (c *exchangeConn) exchange() error {
	if len(c.query) < 2 || len(c.query) < 2+int(binary.BigEndian.Uint16(c.query)) {
		return io.ErrUnexpectedEOF
	}
	size := 2 + int(binary.BigEndian.Uint16(c.query))
	query := new(dns.Msg)
	if err := query.Unpack(c.query[2:size]); err != nil {
		return err
	}
	c.query = c.query[size:]
	ctx := c.ctx
	if !c.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.deadline)
		defer cancel()
	}
	reply, err := c.resolver.Exchange(ctx, query)
	if err != nil {
		return err
	}
	packed, err := reply.Pack()
	if err != nil {
		return err
	}
	c.answer.Write(binary.BigEndian.AppendUint16(nil, uint16(len(packed))))
	c.answer.Write(packed)
	return nil
}

func (c *exchangeConn) Close() error                       { return nil }
func (c *exchangeConn) LocalAddr() net.Addr                { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (c *exchangeConn) RemoteAddr() net.Addr               { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (c *exchangeConn) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *exchangeConn) SetWriteDeadline(t time.Time) error { return nil }

// SetDeadline bounds the exchange to come.
func (c *exchangeConn) SetDeadline(t time.Time) error {
	if !t.IsZero() && time.Until(t) <= 0 {
		return os.ErrDeadlineExceeded
	}
	c.deadline = t
	return nil
}
