package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const mebi = 1 << 20

// onEveryPath runs a test over every path, to targets on this machine and in a gVisor stack.
func onEveryPath(t *testing.T, test func(t *testing.T, p path, n network)) {
	for _, where := range []struct {
		name    string
		network func(testing.TB) network
	}{
		{"to this machine", func(testing.TB) network { return &host{} }},
		{"to a stack", newStackNetwork},
	} {
		for _, p := range paths() {
			if p.mixed && where.name == "to a stack" {
				continue // it is the protocol's own code from the first byte on
			}
			t.Run(where.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				test(t, p, where.network(t))
			})
		}
	}
}

func TestRelayClientEndsFirstAndTargetGoesOn(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		s, client, far := p.pair(t, n, Options{})
		question, answer := noise(1, 10), noise(2, mebi)
		if err := sendAll(client, question); err != nil {
			t.Fatal(err)
		}
		wantAll(t, "target", far, question)
		go sendAll(far, answer)
		wantAll(t, "client", client, answer)
		client.Close()
		wantBooks(t, s, Counters{Accepted: 1, Opened: 1, Sent: 10, Received: mebi})
	})
}

func TestRelayTargetEndsFirstAndClientGoesOn(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		s, client, far := p.pair(t, n, Options{})
		greeting, upload := noise(1, 10), noise(2, mebi)
		if err := sendAll(far, greeting); err != nil {
			t.Fatal(err)
		}
		wantAll(t, "client", client, greeting)
		go sendAll(client, upload)
		wantAll(t, "target", far, upload)
		wantBooks(t, s, Counters{Accepted: 1, Opened: 1, Sent: mebi, Received: 10})
	})
}

func TestRelayBothWaysAtOnce(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		_, client, far := p.pair(t, n, Options{})
		up, down := noise(1, 2*mebi), noise(2, 2*mebi)
		go sendAll(client, up)
		go sendAll(far, down)
		var both sync.WaitGroup
		both.Go(func() { wantAll(t, "client", client, down) })
		both.Go(func() { wantAll(t, "target", far, up) })
		both.Wait()
	})
}

func TestRelayClientReset(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		s, client, far := p.pair(t, n, Options{})
		pingPong(t, client, far)
		Abort(client)
		wantReset(t, "target", far)
		wantBooks(t, s, Counters{Accepted: 1, Opened: 1, Sent: 4, Received: 4, Cut: map[Reason]uint64{ReasonReset: 1}})
	})
}

func TestRelayTargetReset(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		s, client, far := p.pair(t, n, Options{})
		pingPong(t, client, far)
		Abort(far)
		wantReset(t, "client", client)
		wantBooks(t, s, Counters{Accepted: 1, Opened: 1, Sent: 4, Received: 4, Cut: map[Reason]uint64{ReasonReset: 1}})
	})
}

func TestRelayClientResetAfterItsEnd(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		_, client, far := p.pair(t, n, Options{LingerTimeout: 100 * time.Millisecond})
		if err := sendAll(client, []byte("bye")); err != nil {
			t.Fatal(err)
		}
		wantAll(t, "target", far, []byte("bye"))
		Abort(client)
		// The target learns of it by writing, if not before.
		eventually(t, "target cannot write", func() bool {
			_, err := far.Write(noise(1, 1000))
			return err != nil
		})
	})
}

func TestRelayTargetAnswersAndClosesWhileClientSends(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		s, client, far := p.pair(t, n, Options{LingerTimeout: 100 * time.Millisecond})
		answer := noise(2, 1000)
		if _, err := client.Write(noise(1, 1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(far, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		far.Write(answer)
		far.Close()
		got := make([]byte, len(answer))
		if _, err := io.ReadFull(client, got); err != nil || !cmp.Equal(got, answer) {
			t.Fatalf("client did not get the answer: %v", err)
		}
		// Nobody reads what it goes on sending, and it is told so in the end.
		eventually(t, "client cannot write", func() bool {
			_, err := client.Write(noise(3, 64<<10))
			return err != nil
		})
		eventually(t, "flow is over", func() bool { return s.Live() == 0 })
	})
}

func TestRelaySlowReader(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		_, client, far := p.pair(t, n, Options{})
		b := noise(1, n.Buffers()+mebi)
		go sendAll(far, b)
		got := make([]byte, 0, len(b))
		chunk := make([]byte, 128<<10)
		for len(got) < 100 { // the sender is long at a standstill
			m, err := client.Read(chunk[:1])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, chunk[:m]...)
		}
		rest, err := io.ReadAll(client)
		if got = append(got, rest...); err != nil || string(got) != string(b) {
			t.Fatalf("got %d bytes and %v, want the %d sent", len(got), err, len(b))
		}
	})
}

func TestRelayIdleFlowIsReset(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		s, client, far := p.pair(t, n, Options{IdleTimeout: 100 * time.Millisecond})
		wantReset(t, "client", client)
		wantReset(t, "target", far)
		wantBooks(t, s, Counters{Accepted: 1, Opened: 1, Cut: map[Reason]uint64{ReasonIdle: 1}})
	})
}

func TestRelayThousandShortConnections(t *testing.T) {
	onEveryPath(t, func(t *testing.T, p path, n network) {
		total, atOnce := 1000, 20
		if _, ok := n.(*stackNetwork); ok {
			total = 200 // gonet over a pipe is slow under the race detector
		}
		tg := listenTarget(t, n)
		s := must[*Server](t)(p.make(Options{Dialer: n}, tg.address))
		address := serve(t, s)
		var echo, clients sync.WaitGroup
		defer echo.Wait()
		for range atOnce {
			echo.Go(func() {
				for range total / atOnce {
					c := tg.accept(t)
					io.Copy(c, c)
					c.Close()
				}
			})
		}
		for i := range atOnce {
			clients.Go(func() {
				for j := range total / atOnce {
					if err := shortConnection(p, address, tg.address, noise(uint64(i*total+j), 300)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
		wantBooks(t, s, Counters{
			Accepted: uint64(total), Opened: uint64(total), Sent: uint64(300 * total), Received: uint64(300 * total),
		})
	})
}

// shortConnection sends, ends, and wants the same back.
func shortConnection(p path, proxy, target string, b []byte) error {
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if c, err = p.open(c, target); err != nil {
		return err
	}
	if err := sendAll(c, b); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err == nil && string(got) != string(b) {
		err = fmt.Errorf("got %d bytes back, not the %d sent", len(got), len(b))
	}
	return err
}

func TestTargetThatCannotBeReached(t *testing.T) {
	say := func(err error) Dialer {
		return dialerFunc(func(context.Context, string, string) (net.Conn, error) { return nil, err })
	}
	op := func(err error) Dialer { return say(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	for _, c := range []struct {
		name   string
		dialer Dialer
		reason Reason
		reply  int
		status int
	}{
		{"refused by the kernel", new(net.Dialer), ReasonRefused, 5, 502},
		{"refused in a stack", newStackNetwork(t), ReasonRefused, 5, 502},
		{"refused, by number", op(syscall.ECONNREFUSED), ReasonRefused, 5, 502},
		{"network unreachable", op(syscall.ENETUNREACH), ReasonNetworkUnreachable, 3, 502},
		{"network unreachable, in gVisor's words", op(errors.New("network is unreachable")), ReasonNetworkUnreachable, 3, 502},
		{"host unreachable", op(syscall.EHOSTUNREACH), ReasonHostUnreachable, 4, 502},
		{"host unreachable, in gVisor's words", op(errors.New("no route to host")), ReasonHostUnreachable, 4, 502},
		{"no such name", say(&net.DNSError{Err: "no such host", Name: "a.example", IsNotFound: true}), ReasonName, 4, 502},
		{"resolver is silent", say(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), ReasonTimeout, 6, 504},
		{"no answer, the kernel's time", op(syscall.ETIMEDOUT), ReasonTimeout, 6, 504},
		{"no answer, our time", dialerFunc(hang), ReasonTimeout, 6, 504},
		{"policy", say(fmt.Errorf("10.0.0.1 is the metadata server: %w", ErrPolicy)), ReasonPolicy, 2, 403},
		{"firewall", op(syscall.EPERM), ReasonPolicy, 2, 403},
		{"another failure", say(errors.New("tunnel is closed")), ReasonTarget, 1, 502},
	} {
		for _, p := range paths() {
			t.Run(c.name+"/"+p.name, func(t *testing.T) {
				o := Options{Dialer: c.dialer}
				if c.reason == ReasonTimeout {
					o.DialTimeout = 50 * time.Millisecond
				}
				s := must[*Server](t)(p.make(o, unheard(c.dialer)))
				address := serve(t, s)
				if p.name == "tcp forward" {
					wantRefused(t, address)
					wantBooks(t, s, Counters{Accepted: 1, Refused: map[Reason]uint64{c.reason: 1}})
					return
				}
				client := dialProxy(t, address)
				_, err := p.open(client, unheard(c.dialer))
				switch said := fmt.Sprint(err); {
				case strings.Contains(p.name, "http"):
					head, tail := fmt.Sprintf("%d stillwire: ", c.status), fmt.Sprintf(" (%s)\n", c.reason)
					if !strings.HasPrefix(said, head) || !strings.HasSuffix(said, tail) || strings.Count(said, "\n") != 1 {
						t.Errorf("refusal is %q, want one line %q…%q", said, head, tail)
					}
				default:
					if want := fmt.Sprintf("reply %d", c.reply); said != want {
						t.Errorf("refusal is %q, want %q", said, want)
					}
					// The connection ends in order, so that the reply arrives.
					wantAll(t, "client", client, nil)
				}
				client.Close()
				wantBooks(t, s, Counters{Accepted: 1, Refused: map[Reason]uint64{c.reason: 1}})
			})
		}
	}
}

// unheard is a target on which nobody listens.
func unheard(d Dialer) string {
	if n, ok := d.(network); ok {
		return net.JoinHostPort(n.Host(), "1")
	}
	return "127.0.0.1:1"
}

// hang is a dialer to a target that is silent.
func hang(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestEndOfServeAtEveryStage(t *testing.T) {
	why := errors.New("the process ends")
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			stages := []struct {
				name  string
				enter func(t *testing.T, s *Server, client net.Conn, tg *target, dialing chan struct{}) (far net.Conn)
			}{
				{"nothing said", func(t *testing.T, s *Server, client net.Conn, tg *target, dialing chan struct{}) net.Conn {
					if strings.Contains(p.name, "forward") {
						<-dialing
					}
					return nil
				}},
				{"half a request", func(t *testing.T, s *Server, client net.Conn, tg *target, dialing chan struct{}) net.Conn {
					if strings.Contains(p.name, "http") {
						io.WriteString(client, "CONNECT 127")
					} else {
						client.Write([]byte{5, 1})
					}
					return nil
				}},
				{"dialling", func(t *testing.T, s *Server, client net.Conn, tg *target, dialing chan struct{}) net.Conn {
					go p.open(client, tg.address)
					<-dialing
					return nil
				}},
				{"relaying", func(t *testing.T, s *Server, client net.Conn, tg *target, dialing chan struct{}) net.Conn {
					must[net.Conn](t)(p.open(client, tg.address))
					far := tg.accept(t)
					pingPong(t, client, far)
					return far
				}},
				{"half-closed", func(t *testing.T, s *Server, client net.Conn, tg *target, dialing chan struct{}) net.Conn {
					must[net.Conn](t)(p.open(client, tg.address))
					far := tg.accept(t)
					sendAll(client, []byte("bye"))
					wantAll(t, "target", far, []byte("bye"))
					return far
				}},
			}
			for _, stage := range stages {
				t.Run(stage.name, func(t *testing.T) {
					tg := listenTarget(t, &host{})
					dialing := make(chan struct{}, 1)
					holds := stage.name == "dialling" || stage.name == "nothing said"
					d := dialerFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
						dialing <- struct{}{}
						if holds {
							return hang(ctx, network, address)
						}
						return new(net.Dialer).DialContext(ctx, network, address)
					})
					s := must[*Server](t)(p.make(Options{Dialer: d}, tg.address))
					address, cancel, done := serveCtx(t, s, context.Background())
					client := dialProxy(t, address)
					eventually(t, "flow begins", func() bool { return s.Live() == 1 })
					far := stage.enter(t, s, client, tg, dialing)
					cancel(why)
					if err := <-done; !errors.Is(err, why) {
						t.Errorf("Serve returned %v, want %v", err, why)
					}
					done <- nil
					if s.Live() != 0 {
						t.Errorf("%d flows live after Serve", s.Live())
					}
					if stage.name != "dialling" { // there, p.open reads
						wantReset(t, "client", client)
					}
					if far != nil && stage.name == "relaying" {
						wantReset(t, "target", far)
					}
				})
			}
		})
	}
}

func TestShutdownWaitsForFlowsThenCutsThem(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			tg := listenTarget(t, &host{})
			s := must[*Server](t)(p.make(Options{Dialer: new(net.Dialer)}, tg.address))
			address, _, done := serveCtx(t, s, context.Background())
			flows := make([][2]net.Conn, 2)
			for i := range flows {
				client := must[net.Conn](t)(p.open(dialProxy(t, address), tg.address))
				flows[i] = [2]net.Conn{client, tg.accept(t)}
			}
			ctx, cancel := context.WithCancel(context.Background())
			result := make(chan error, 1)
			go func() { result <- s.Shutdown(ctx) }()
			<-s.closing.Done() // before it, a look would be taken for a third flow
			eventually(t, "listener is closed", func() bool {
				c, err := net.Dial("tcp", address)
				if err == nil {
					c.Close()
				}
				return err != nil
			})
			for _, f := range flows {
				pingPong(t, f[0], f[1])
			}
			sendAll(flows[0][0], nil)
			sendAll(flows[0][1], nil)
			eventually(t, "first flow ends by itself", func() bool { return s.Live() == 1 })
			cancel()
			if err := <-result; !errors.Is(err, context.Canceled) {
				t.Errorf("Shutdown returned %v, want %v: a flow was cut", err, context.Canceled)
			}
			wantReset(t, "client", flows[1][0])
			wantReset(t, "target", flows[1][1])
			if err := <-done; !errors.Is(err, ErrServerClosed) {
				t.Errorf("Serve returned %v, want %v", err, ErrServerClosed)
			}
			done <- nil
			if got, want := s.Counters().Cut, (map[Reason]uint64{ReasonShutdown: 1}); !cmp.Equal(got, want) {
				t.Errorf("cut %v, want %v", got, want)
			}
		})
	}
}

func TestClientLeavesWhileItsTargetIsDialled(t *testing.T) {
	type leaver struct {
		path
		how   string
		leave func(net.Conn)
	}
	var leavers []leaver
	for _, p := range paths() {
		leavers = append(leavers, leaver{p, "by a reset", Abort})
		if p.name != "tcp forward" { // there, it may have said all that it has to say
			leavers = append(leavers, leaver{p, "in order", func(c net.Conn) { CloseWrite(c) }})
		}
	}
	for _, p := range leavers {
		t.Run(p.name+"/"+p.how, func(t *testing.T) {
			dialing, ended := make(chan struct{}), make(chan error, 1)
			d := dialerFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
				close(dialing)
				_, err := hang(ctx, network, address)
				ended <- context.Cause(ctx)
				return nil, err
			})
			s := must[*Server](t)(p.make(Options{Dialer: d}, "192.0.2.1:1"))
			c := dialProxy(t, serve(t, s))
			asking := make(chan struct{})
			go func() { defer close(asking); p.open(c, "192.0.2.1:1") }()
			<-dialing
			p.leave(c)
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("the dial goes on although its client has left")
			}
			<-asking
			wantBooks(t, s, Counters{Accepted: 1, Refused: map[Reason]uint64{ReasonCanceled: 1}})
		})
	}
}

func TestLimitsRefuseInTheWordsOfTheProtocol(t *testing.T) {
	for _, limit := range []struct {
		name   string
		o      Options
		reason Reason
	}{
		{"in all", Options{MaxConns: 1}, ReasonLimit},
		{"per client", Options{MaxPerClient: 1}, ReasonClientLimit},
	} {
		for _, p := range paths() {
			t.Run(limit.name+"/"+p.name, func(t *testing.T) {
				tg := listenTarget(t, &host{})
				o := limit.o
				o.Dialer = new(net.Dialer)
				s := must[*Server](t)(p.make(o, tg.address))
				address := serve(t, s)
				first := must[net.Conn](t)(p.open(dialProxy(t, address), tg.address))
				far := tg.accept(t)
				wantLimited(t, p, address, tg.address, limit.reason)
				pingPong(t, first, far)
				eventually(t, "refused flow ends", func() bool { return s.Live() == 1 })
				Abort(first)
				eventually(t, "first flow ends", func() bool { return s.Live() == 0 })
				again := must[net.Conn](t)(p.open(dialProxy(t, address), tg.address))
				pingPong(t, again, tg.accept(t))
				if got, want := s.Counters().Refused, (map[Reason]uint64{limit.reason: 1}); !cmp.Equal(got, want) {
					t.Errorf("refused %v, want %v", got, want)
				}
			})
		}
	}
}

// wantLimited wants to be told that there are too many connections.
func wantLimited(t *testing.T, p path, proxy, target string, r Reason) {
	t.Helper()
	if p.name == "tcp forward" {
		wantRefused(t, proxy)
		return
	}
	c := dialProxy(t, proxy)
	defer c.Close()
	want := "reply 1"
	if strings.Contains(p.name, "http") {
		want = fmt.Sprintf("503 stillwire: too many connections are open, try again later (%s)\n", r)
	}
	if _, err := p.open(c, target); fmt.Sprint(err) != want {
		t.Errorf("refusal is %q, want %q", err, want)
	}
}

func TestUpdateChangesOnlyNewFlows(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			tg, other := listenTarget(t, &host{}), listenTarget(t, &host{})
			s := must[*Server](t)(p.make(Options{Dialer: new(net.Dialer)}, tg.address))
			address := serve(t, s)
			old := must[net.Conn](t)(p.open(dialProxy(t, address), tg.address))
			oldFar := tg.accept(t)
			o := *s.opts.Load()
			o.Dialer = dialerFunc(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, other.address)
			})
			if err := s.Update(o); err != nil {
				t.Fatal(err)
			}
			fresh := must[net.Conn](t)(p.open(dialProxy(t, address), tg.address))
			freshFar := other.accept(t)
			pingPong(t, old, oldFar)
			pingPong(t, fresh, freshFar)
			if err := s.Update(Options{}); !errors.Is(err, errNoDialer) {
				t.Errorf("Update without a dialer: %v, want %v", err, errNoDialer)
			}
		})
	}
}

// pingPong shows that a flow carries both ways.
func pingPong(t testing.TB, a, b net.Conn) {
	t.Helper()
	for _, w := range []struct{ from, to net.Conn }{{a, b}, {b, a}} {
		if _, err := w.from.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(w.to, got); err != nil || string(got) != "ping" {
			t.Fatalf("got %q and %v, want ping", got, err)
		}
	}
}

// wantBooks waits until no flow is live, and compares the counters.
func wantBooks(t testing.TB, s *Server, want Counters) {
	t.Helper()
	eventually(t, "all flows end", func() bool { return s.Live() == 0 })
	for _, m := range []*map[Reason]uint64{&want.Refused, &want.Cut, &want.Dropped} {
		if *m == nil {
			*m = map[Reason]uint64{}
		}
	}
	if diff := cmp.Diff(want, s.Counters()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}
