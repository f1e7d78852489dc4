package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
)

// listenerOf gives what is in the channel, and net.ErrClosed once it is closed.
type listenerOf struct {
	net.Listener
	next chan any // net.Conn or error
}

func (l *listenerOf) Accept() (net.Conn, error) {
	switch v := (<-l.next).(type) {
	case net.Conn:
		return v, nil
	case error:
		return nil, v
	}
	return nil, net.ErrClosed
}

func TestServeOutlastsALackOfDescriptors(t *testing.T) {
	tg := listenTarget(t, &host{})
	var log lockedBuffer
	s := must[*Server](t)(NewTCPForward(tg.address, Options{Dialer: &host{}, Log: zerolog.New(&log).Level(zerolog.InfoLevel)}))
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	l := &listenerOf{ln, make(chan any, 10)}
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), l) }()
	lack := &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	a, b := tcpPair(t)
	for _, v := range []any{lack, lack, &net.OpError{Op: "accept", Err: syscall.ECONNABORTED}, b} {
		l.next <- v
	}
	far := tg.accept(t)
	pingPong(t, a, far)
	a.Close()
	far.Close()
	broken := errors.New("listener is broken")
	l.next <- broken
	if err := <-done; !errors.Is(err, broken) || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("Serve returned %v, want %v with the listener's address", err, broken)
	}
	want := []string{"cannot accept connections, trying again", "accepting connections again"}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], want[0]) || !strings.Contains(lines[1], want[1]) {
		t.Errorf("log is %q, want %q", lines, want)
	}
}

func TestServeAfterShutdown(t *testing.T) {
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: &host{}}))
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	if err := s.Serve(context.Background(), ln); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Serve returned %v, want %v", err, ErrServerClosed)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("listener is not closed: %v", err)
	}
	u := must[*UDPForward](t)(NewUDPForward("a:1", Options{Dialer: &host{}}))
	u.Shutdown(context.Background())
	pc := must[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
	if err := u.Serve(context.Background(), pc); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Serve returned %v, want %v", err, ErrServerClosed)
	}
	if _, _, err := pc.ReadFrom(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("socket is not closed: %v", err)
	}
}

func TestShutdownOfSeveralListenersTwice(t *testing.T) {
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: &host{}}))
	serve(t, s)
	address := serve(t, s)
	control := dialProxy(t, address)
	eventually(t, "flow begins", func() bool { return s.Live() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v, want %v", err, context.Canceled)
	}
	wantReset(t, "client", control)
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
}

func TestMoreRefusedThanCanBeToldAreReset(t *testing.T) {
	var log lockedBuffer
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: &host{}, MaxConns: 1, Log: zerolog.New(&log).Level(zerolog.InfoLevel)}))
	address := serve(t, s)
	clients := []net.Conn{dialProxy(t, address)}
	eventually(t, "first is served", func() bool { return s.Live() == 1 })
	for i := range maxRefusing {
		clients = append(clients, dialProxy(t, address))
		eventually(t, fmt.Sprintf("refusal %d begins", i), func() bool { return s.Live() == i+2 })
	}
	wantRefused(t, address)
	for _, c := range clients {
		c.Close()
	}
	eventually(t, "all are gone", func() bool { return s.Live() == 0 })
	if n := s.Counters(); n.Refused[ReasonLimit] != maxRefusing+1 {
		t.Errorf("refused %v, want %d", n.Refused, maxRefusing+1)
	}
	want := []string{"connection limit reached, refusing new ones", "connections are below the limit again"}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], want[0]) || !strings.Contains(lines[1], want[1]) {
		t.Errorf("log is %q, want its begin and its end only: %q", lines, want)
	}
}

func TestPanicOfAHandlerIsAnErrorInTheLog(t *testing.T) {
	var log bytes.Buffer
	w := debugWriter{&flow{log: zerolog.New(&log)}}
	w.Write([]byte("http: panic serving 127.0.0.1:1: boom\n"))
	w.Write([]byte("http: TLS handshake error\n"))
	want := `{"level":"error","message":"http: panic serving 127.0.0.1:1: boom"}` + "\n" +
		`{"level":"debug","message":"http: TLS handshake error"}` + "\n"
	if log.String() != want {
		t.Errorf("log is %s, want %s", log.String(), want)
	}
}
