package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// errGone is why a dial ends when its client leaves.
var errGone = errors.New("client has left")

// flow is one client connection and what is done for it. It lives in one goroutine; what
// that starts ends before it does.
type flow struct {
	s       *Server
	o       *Options // as they were when the flow began
	client  net.Conn
	host    string // of the client
	refusal Reason // why it is only told that it is not served; "": it is served
	log     zerolog.Logger

	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   atomic.Pointer[idleTimer] // watches the connections to targets, where the protocol wants that
}

func newFlow(s *Server, client net.Conn) *flow {
	f := &flow{s: s, o: s.opts.Load(), client: client, host: clientHost(client)}
	f.log = f.o.Log.With().Str("proxy", s.protocol).Str("client", remoteName(client)).Logger()
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	return f
}

// clientHost is what clients are told apart by. All of a unix socket are one.
func clientHost(c net.Conn) string {
	name := remoteName(c)
	if host, _, err := net.SplitHostPort(name); err == nil {
		return host
	}
	return name
}

// remoteName is the far address of a connection. Some have none any more when they break.
func remoteName(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return a.String()
	}
	return "unknown"
}

// run serves the client until the flow ends by itself, by ctx, or by cancel. These close the
// client's connection under the protocol, which then finds its reads and writes failing.
func (f *flow) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { f.cancel(context.Cause(ctx)) })
	defer stop()
	conn, cut := f.client, make(chan struct{})
	whole := context.AfterFunc(f.ctx, func() { defer close(cut); Abort(conn) })
	f.s.serve(f)
	if whole() {
		conn.Close()
	} else {
		<-cut
		f.s.counts.cut.add(ReasonShutdown)
	}
	f.cancel(nil)
}

// refused counts and logs why the client is not served. A flow that was refused by the limits
// is counted already.
func (f *flow) refused(r Reason, target string, err error) {
	f.complain(r, target, err)
	f.turnedAway(r, target, err)
}

// complain lets the operator know, in time.
func (f *flow) complain(r Reason, target string, err error) {
	f.s.upset.add(r, grievance{f.o.Log, clientHost(f.client), target, err})
}

// turnedAway is refused without a word to the operator.
func (f *flow) turnedAway(r Reason, target string, err error) {
	if f.refusal == "" {
		f.s.counts.refused.add(r)
	}
	f.log.Debug().Err(err).Str("target", target).Str("reason", string(r)).Msg("flow refused")
}

// relay carries the flow between its client and its target, both of which it closes.
func (f *flow) relay(client, target net.Conn, name string) {
	began := time.Now()
	f.log.Debug().Str("target", name).Msg("flow opened")
	t, err := Relay(f.ctx, client, target, RelayOptions{
		IdleTimeout:       f.o.IdleTimeout,
		HalfClosedTimeout: f.o.HalfClosedTimeout,
		LingerTimeout:     f.o.LingerTimeout,
		Buffers:           f.o.Buffers,
	})
	switch {
	case err == nil || f.ctx.Err() != nil: // run counts the latter
	case errors.Is(err, ErrIdle):
		f.s.counts.cut.add(ReasonIdle)
	default:
		f.s.counts.cut.add(ReasonReset)
	}
	f.log.Debug().Err(err).Str("target", name).Int64("sent", t.AToB).Int64("received", t.BToA).
		Dur("took", time.Since(began)).Msg("flow closed")
}

// dial reaches a target within DialTimeout. The connection counts into the server's
// counters.
func (f *flow) dial(ctx context.Context, o *Options, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	c, err := o.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	f.s.counts.opened.Add(1)
	return &counted{Conn: c, f: f}, nil
}

// dialError puts the reason why ctx was cancelled in place of what the dialer makes of it.
func dialError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// dialAttended dials for a client that waits for nothing but this. A client that breaks its
// connection meanwhile ends the dial, and so does one that ends it, if endIsLeaving; what it
// sends meanwhile is kept for the target. It returns the connections to relay between, also
// the client's when the dial fails.
func (f *flow) dialAttended(client net.Conn, network, address string, endIsLeaving bool) (target, same net.Conn, err error) {
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	early := &headed{Conn: client}
	var attending sync.WaitGroup
	attending.Go(func() {
		buf := make([]byte, 2048)
		n, err := client.Read(buf)
		early.head = buf[:n]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		early.err = err
		if err != nil && (err != io.EOF || endIsLeaving) {
			cancel(errGone)
		}
	})
	target, err = f.dial(ctx, f.o, network, address)
	client.SetReadDeadline(past())
	attending.Wait()
	client.SetReadDeadline(time.Time{})
	if len(early.head) == 0 && early.err == nil {
		return target, client, err
	}
	return target, early, err
}
