package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrServerClosed is what Serve returns after Shutdown.
var ErrServerClosed = errors.New("proxy server is shut down")

// maxRefusing is how many clients beyond the limit are told so at one time; more are reset.
const maxRefusing = 64

// Server serves client connections: a proxy or a TCP forward. Make it with NewSOCKS5,
// NewHTTP, NewMixed or NewTCPForward.
type Server struct {
	protocol string // for logs: "socks5"
	via      string // what the server calls itself in Via fields
	serve    func(*flow)

	opts    atomic.Pointer[Options]
	counts  counts
	upset   complaints
	closing context.Context // ends when Shutdown begins
	shut    context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	flows     map[*flow]struct{}
	clients   map[string]int // served flows by client host, when MaxPerClient wants it
	served    int            // flows that count against the limit
	full      bool           // the limit was reached and logged
	work      sync.WaitGroup // flows; Add only under mu and before closing ends
}

func newServer(protocol string, serve func(*flow), o Options) (*Server, error) {
	s := &Server{
		protocol:  protocol,
		via:       "stillwire-" + rand.Text()[:8],
		serve:     serve,
		listeners: make(map[net.Listener]struct{}),
		flows:     make(map[*flow]struct{}),
		clients:   make(map[string]int),
	}
	s.closing, s.shut = context.WithCancel(context.Background())
	if err := s.Update(o); err != nil {
		return nil, fmt.Errorf("%s: %w", protocol, err)
	}
	return s, nil
}

// Update swaps all options for flows that begin from now on. Those that run keep theirs. An
// error says what is missing in o, and then nothing changes.
func (s *Server) Update(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	s.opts.Store(&o)
	return nil
}

// Counters returns a snapshot.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts.snapshot(len(s.flows))
}

// Live returns the number of client connections that have not ended.
func (s *Server) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flows)
}

// Serve accepts connections from ln until ctx ends, Shutdown is called, or ln fails, and
// waits for the flows that it began. It owns ln and closes it. When ctx ends, its flows are
// reset. Several listeners may be served at one time.
//
// The error is never nil: ErrServerClosed after Shutdown, the cause of ctx, or what Accept
// said.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if !s.addListener(ln) {
		return ErrServerClosed
	}
	defer s.removeListener(ln)
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	var mine sync.WaitGroup
	defer mine.Wait()
	err := s.acceptAll(ctx, ln, &mine)
	switch {
	case s.closing.Err() != nil:
		return ErrServerClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("accept on %s: %w", ln.Addr(), err)
}

func (s *Server) addListener(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return false
	}
	s.listeners[ln] = struct{}{}
	return true
}

func (s *Server) removeListener(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

// acceptAll returns the error that ended it. A lack of descriptors or memory does not: it
// waits for some to come back.
func (s *Server) acceptAll(ctx context.Context, ln net.Listener, mine *sync.WaitGroup) error {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			if pause > 0 {
				s.opts.Load().Log.Info().Str("listen", ln.Addr().String()).Msg("accepting connections again")
			}
			pause = 0
			s.begin(ctx, conn, mine)
		case isErrno(err, syscall.ECONNABORTED, syscall.EINTR):
		case isErrno(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM):
			if pause == 0 {
				s.opts.Load().Log.Warn().Err(err).Str("listen", ln.Addr().String()).Msg("cannot accept connections, trying again")
			}
			pause = min(max(2*pause, shortest), longest)
			if !s.rest(ctx, pause) {
				return err
			}
		default:
			return err
		}
	}
}

// rest waits, and reports whether there is a reason to go on.
func (s *Server) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.closing.Done():
	}
	return false
}

// begin starts the flow of a new connection, or resets it.
func (s *Server) begin(ctx context.Context, conn net.Conn, mine *sync.WaitGroup) {
	f := newFlow(s, conn)
	if !s.admit(f) {
		Abort(conn)
		return
	}
	mine.Go(func() {
		defer s.work.Done()
		defer s.remove(f)
		f.run(ctx)
	})
}

// admit counts the flow and enters it into the books in one step, so that who sees it counted
// and not alive knows that it has ended. A flow beyond the limits is entered with the reason
// why its client is to be refused, so long as there are not too many of these; otherwise, and
// while the server is closing, admit returns false.
func (s *Server) admit(f *flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.accepted.Add(1)
	if s.closing.Err() != nil {
		s.counts.refused.add(ReasonShutdown)
		return false
	}
	f.refusal = s.overLimit(f)
	if f.refusal != "" {
		s.counts.refused.add(f.refusal)
		if len(s.flows)-s.served >= maxRefusing {
			f.complain(f.refusal, "", nil)
			return false
		}
	} else {
		s.served++
		s.clients[f.host]++
	}
	s.flows[f] = struct{}{}
	s.work.Add(1)
	return true
}

// overLimit says which limit the flow is beyond, if any. It logs when MaxConns is reached.
func (s *Server) overLimit(f *flow) Reason {
	if most := f.o.MaxConns; most > 0 && s.served >= most {
		if !s.full {
			f.o.Log.Warn().Int("limit", most).Msg("connection limit reached, refusing new ones")
		}
		s.full = true
		return ReasonLimit
	}
	if most := f.o.MaxPerClient; most > 0 && s.clients[f.host] >= most {
		return ReasonClientLimit
	}
	return ""
}

// remove takes the flow out of the books.
func (s *Server) remove(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flows, f)
	if f.refusal != "" {
		return
	}
	s.served--
	if s.clients[f.host]--; s.clients[f.host] == 0 {
		delete(s.clients, f.host)
	}
	// A quarter below, so that a server at its limit does not log each connection.
	if s.full && s.served <= s.opts.Load().MaxConns*3/4 {
		s.full = false
		s.opts.Load().Log.Info().Msg("connections are below the limit again")
	}
}

// Shutdown closes the listeners, waits until all flows have ended, and when ctx ends first,
// resets those that are left. HTTP clients between two requests are closed at once. It
// returns nil when every flow ended by itself and the cause of ctx otherwise; in both cases
// nothing runs any more. It may be called more than once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.shut()
	for ln := range s.listeners {
		ln.Close()
	}
	s.mu.Unlock()
	defer s.upset.end()
	return drain(ctx, &s.work, s.abortAll)
}

func (s *Server) abortAll() (cut int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.flows {
		f.cancel(ErrServerClosed)
	}
	return len(s.flows)
}

// drain waits for work; when ctx ends first it calls abort, which says how much there was to
// cut, and waits on.
func drain(ctx context.Context, work *sync.WaitGroup, abort func() int) error {
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	cut := abort()
	<-done
	if cut == 0 {
		return nil
	}
	return context.Cause(ctx)
}
