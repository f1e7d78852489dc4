package proxy

import (
	"errors"
	"io"
	"net"
	"time"
)

// CloseWrite ends the writing half of a connection (FIN), when it can: *net.TCPConn,
// *net.UnixConn, *tls.Conn and the connections of netstack can. Others return
// errors.ErrUnsupported and stay as they are.
func CloseWrite(c net.Conn) error {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Abort ends a connection at once: the far side of a TCP connection sees a reset, and what
// was not yet sent is dropped. It takes the connection's Abort method where there is one,
// SetLinger(0) where there is that, and closes it in any case.
func Abort(c net.Conn) {
	switch c := c.(type) {
	case interface{ Abort() error }:
		c.Abort()
	case interface{ Abort() }:
		c.Abort()
	case interface{ SetLinger(sec int) error }:
		c.SetLinger(0)
	}
	c.Close()
}

// counted is a connection to a target: it counts what moves.
type counted struct {
	net.Conn
	f *flow
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.f.s.counts.received.Add(uint64(n))
	c.f.idle.Load().touch()
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.f.s.counts.sent.Add(uint64(n))
	c.f.idle.Load().touch()
	return n, err
}

func (c *counted) CloseWrite() error { return CloseWrite(c.Conn) }

func (c *counted) Abort() { Abort(c.Conn) }

// headed is a connection of which something was read already.
type headed struct {
	net.Conn
	head []byte // read before Conn
	err  error  // what Conn said after head; nil: ask it
}

func (c *headed) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(b)
}

func (c *headed) CloseWrite() error { return CloseWrite(c.Conn) }

func (c *headed) Abort() { Abort(c.Conn) }

// withReader is a connection that is read by way of a reader on top of it.
type withReader struct {
	net.Conn
	r io.Reader
}

func (c *withReader) Read(b []byte) (int, error) { return c.r.Read(b) }

func (c *withReader) CloseWrite() error { return CloseWrite(c.Conn) }

func (c *withReader) Abort() { Abort(c.Conn) }

// farewell closes a connection whose last word must arrive: a close while bytes of the
// client are unread would be a reset, and a reset can overtake what was written. So the end
// is announced, and what the client still sends is thrown away, until it ends or the time is
// over.
func farewell(c net.Conn, patience time.Duration) {
	if CloseWrite(c) == nil {
		c.SetReadDeadline(time.Now().Add(patience))
		io.Copy(io.Discard, struct{ io.Reader }{c})
	}
	c.Close()
}

// past is a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }
