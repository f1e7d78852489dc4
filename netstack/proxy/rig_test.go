package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); !ok(); <-look.C {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// network is where a target is: on this machine, or in another stack that is reached by a
// dialer of its own.
type network interface {
	Dialer
	PacketListener
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	// Host is an address of the target's side.
	Host() string
	// Buffers is how much may be under way in one direction, at most.
	Buffers() int
}

// host is this machine.
type host struct {
	net.Dialer
	net.ListenConfig
}

func (host) Host() string { return "127.0.0.1" }
func (host) Buffers() int { return 11 << 20 } // net.ipv4.tcp_rmem and tcp_wmem, of two connections where they do not grow

// dialerFunc is a Dialer that is a function.
type dialerFunc func(ctx context.Context, network, address string) (net.Conn, error)

func (f dialerFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

// serve runs a server on loopback and shuts it down at the end of the test.
func serve(t testing.TB, s *Server) (address string) {
	t.Helper()
	address, _, _ = serveCtx(t, s, context.Background())
	return address
}

func serveCtx(t testing.TB, s *Server, ctx context.Context) (address string, cancel func(error), done chan error) {
	t.Helper()
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancelCause := context.WithCancelCause(ctx)
	done = make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(gone)
		cancelCause(nil)
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Serve does not return after Shutdown")
		}
	})
	eventually(t, "server listens", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.listeners) > 0 || s.closing.Err() != nil
	})
	return ln.Addr().String(), cancelCause, done
}

// target listens in the network and hands connections over.
type target struct {
	address string
	conns   chan net.Conn
}

func listenTarget(t testing.TB, n network) *target {
	t.Helper()
	ln := must[net.Listener](t)(n.Listen(context.Background(), "tcp", net.JoinHostPort(n.Host(), "0")))
	tg := &target{address: ln.Addr().String(), conns: make(chan net.Conn, 4096)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			tg.conns <- c
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for len(tg.conns) > 0 {
			(<-tg.conns).Close()
		}
	})
	return tg
}

func (tg *target) accept(t testing.TB) net.Conn {
	t.Helper()
	select {
	case c := <-tg.conns:
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	case <-time.After(patience):
		t.Fatal("no connection to the target")
		return nil
	}
}

// refusal is how a path tells a client that its target cannot be had.
type refusal struct{ said string }

func (r *refusal) Error() string { return r.said }

// path is one way to a target.
type path struct {
	name  string
	mixed bool
	make  func(o Options, target string) (*Server, error)
	// open asks for the target on a fresh connection. An error is a *refusal.
	open func(c net.Conn, target string) (net.Conn, error)
}

func paths() []path {
	withUsers := func(make func(Options) (*Server, error)) func(Options, string) (*Server, error) {
		return func(o Options, _ string) (*Server, error) {
			o.Users, _ = NewUsers(NewCredentials("anna", "secret"))
			return make(o)
		}
	}
	open := func(make func(Options) (*Server, error)) func(Options, string) (*Server, error) {
		return func(o Options, _ string) (*Server, error) { return make(o) }
	}
	socks := func(c net.Conn, target string) (net.Conn, error) { return socksConnect(c, "", "", target) }
	return []path{
		{"socks5", false, open(NewSOCKS5), socks},
		{"socks5 with users", false, withUsers(NewSOCKS5), func(c net.Conn, target string) (net.Conn, error) {
			return socksConnect(c, "anna", "secret", target)
		}},
		{"http connect", false, open(NewHTTP), httpConnect},
		{"mixed socks5", true, open(NewMixed), socks},
		{"mixed http", true, open(NewMixed), httpConnect},
		{"tcp forward", false, func(o Options, target string) (*Server, error) { return NewTCPForward(target, o) },
			func(c net.Conn, _ string) (net.Conn, error) { return c, nil }},
	}
}

// socksConnect is a SOCKS5 client. It takes no byte more than it must from c.
func socksConnect(c net.Conn, user, pass, target string) (net.Conn, error) {
	_, _, err := socksRequest(c, user, pass, commandConnect, target)
	return c, err
}

func socksRequest(c net.Conn, user, pass string, command byte, target string) (code reply, bound netip.AddrPort, err error) {
	method := byte(methodNone)
	if user != "" {
		method = methodUserPass
	}
	if err := exchange(c, []byte{5, 1, method}, []byte{5, method}); err != nil {
		return 0, bound, err
	}
	if user != "" {
		b := append([]byte{1, byte(len(user))}, user...)
		b = append(append(b, byte(len(pass))), pass...)
		if err := exchange(c, b, []byte{1, 0}); err != nil {
			return 0, bound, err
		}
	}
	if _, err := c.Write(append([]byte{5, command, 0}, wireAddress(target)...)); err != nil {
		return 0, bound, err
	}
	return readReply(c)
}

func readReply(c io.Reader) (code reply, bound netip.AddrPort, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, bound, err
	}
	d, err := readDestination(c, head[3])
	if err == nil && head[1] != 0 {
		err = &refusal{fmt.Sprintf("reply %d", head[1])}
	}
	return reply(head[1]), d.addrPort(), err
}

func exchange(c net.Conn, say, want []byte) error {
	if _, err := c.Write(say); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return &refusal{fmt.Sprintf("got % x, want % x", got, want)}
	}
	return nil
}

// wireAddress is HOST:PORT as SOCKS5 writes it.
func wireAddress(target string) []byte {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		panic(err)
	}
	var n uint16
	fmt.Sscan(port, &n)
	if addr, err := netip.ParseAddr(host); err == nil {
		return appendAddrPort(nil, netip.AddrPortFrom(addr, n))
	}
	b := append([]byte{addrName, byte(len(host))}, host...)
	return binary.BigEndian.AppendUint16(b, n)
}

func httpConnect(c net.Conn, target string) (net.Conn, error) {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return nil, err
	}
	// One byte at a time: what follows the head belongs to the target.
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{c}, 16), &http.Request{Method: "CONNECT"})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(c, res.ContentLength))
		return nil, &refusal{fmt.Sprintf("%d %s", res.StatusCode, b)}
	}
	return c, nil
}

type oneByte struct{ io.Reader }

func (r oneByte) Read(b []byte) (int, error) { return r.Reader.Read(b[:1]) }

// dialProxy connects to a proxy, without asking for anything.
func dialProxy(t testing.TB, address string) net.Conn {
	t.Helper()
	c := must[net.Conn](t)(net.Dial("tcp", address))
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// pair opens a flow through a path: the client's end and the target's.
func (p path) pair(t testing.TB, n network, o Options) (s *Server, client, far net.Conn) {
	t.Helper()
	tg := listenTarget(t, n)
	o.Dialer, o.Packets = n, n
	s = must[*Server](t)(p.make(o, tg.address))
	c := dialProxy(t, serve(t, s))
	client, err := p.open(c, tg.address)
	if err != nil {
		t.Fatal(err)
	}
	return s, client, tg.accept(t)
}

// noise is n bytes that look like nothing, the same for a seed.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8(sha256.Sum256(binary.BigEndian.AppendUint64(nil, seed))).Read(b)
	return b
}

// sendAll writes, and ends the writing half.
func sendAll(c net.Conn, b []byte) error {
	if _, err := c.Write(b); err != nil {
		return err
	}
	return CloseWrite(c)
}

func wantAll(t testing.TB, who string, c net.Conn, want []byte) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%s: after %d bytes: %v", who, len(got), err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s: got %d bytes, not the %d bytes sent", who, len(got), len(want))
	}
}

func wantReset(t testing.TB, who string, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if !isReset(err) {
		t.Fatalf("%s: got %d bytes and %v, want a reset", who, n, err)
	}
}

// wantRefused connects, and wants a reset now or soon: it can come before the connection is
// known to stand.
func wantRefused(t testing.TB, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if isReset(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	wantReset(t, "client", c)
}

// isReset knows a reset by number, and by the words of gonet.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || text(err) == "connection reset by peer"
}

// namesTo is a dialer that knows some HOST:PORT and no others.
func namesTo(names map[string]string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		to, ok := names[address]
		if !ok {
			return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
}
