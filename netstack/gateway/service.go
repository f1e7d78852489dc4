package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/netstack/proxy"
)

// server is what serves a service: *proxy.Server or *proxy.UDPForward.
type server interface {
	Update(proxy.Options) error
	Shutdown(context.Context) error
	Counters() proxy.Counters
}

// service is a Service that runs: a place, and the server of the flows that come in there.
// The loop of the gateway calls its methods, but for status, which anyone may call.
type service struct {
	gateway zerolog.Logger        // the gateway's log
	flows   context.Context       // ends when flows must end
	buffers *proxy.Buffers        // of all services
	stream  *door[net.Listener]   // nil: it is for datagrams
	packet  *door[net.PacketConn] // nil: it is for streams
	serving sync.WaitGroup        // Serve calls, and servers that were replaced

	mu     sync.Mutex // of what follows
	spec   Service
	tunnel *tunnel
	server server
	old    []server      // those that were replaced and still have flows
	gate   *gate         // of stream
	quit   chan struct{} // of packet: ends its mending
}

// openService opens the listener of a service and serves nothing yet. Only a publish needs
// its tunnel already.
func (g *Gateway) openService(ctx context.Context, spec Service, t *tunnel) (*service, error) {
	s := &service{gateway: g.log, flows: g.flows, buffers: &g.buffers, spec: spec, tunnel: t}
	ctx = context.WithoutCancel(ctx)
	var err error
	if spec.Network() == "udp" {
		s.packet = &door[net.PacketConn]{log: *s.log(), reopen: func() (net.PacketConn, error) { return s.openPacket(ctx) }}
		s.packet.at, err = s.openPacket(ctx)
	} else {
		s.stream = &door[net.Listener]{log: *s.log(), reopen: func() (net.Listener, error) { return s.openStream(ctx) }}
		s.stream.at, err = s.openStream(ctx)
	}
	return s, err
}

func (s *service) openStream(ctx context.Context) (net.Listener, error) {
	spec, t := s.now()
	if spec.Kind == Publish {
		return t.listen(spec.Listen)
	}
	return openStream(ctx, spec.Listen, spec.shared())
}

func (s *service) openPacket(ctx context.Context) (net.PacketConn, error) {
	spec, t := s.now()
	if spec.Kind == Publish {
		return t.listenPacket(spec.Listen)
	}
	return openPacket(ctx, spec.Listen)
}

// shared reports whether other users of this machine may use a unix socket.
func (s Service) shared() bool { return s.Open || s.guarded() }

func (s *service) now() (Service, *tunnel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec, s.tunnel
}

// log names the service as it is now.
func (s *service) log() *zerolog.Logger {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.named()
	return &log
}

// named is log. Call it with mu held.
func (s *service) named() zerolog.Logger {
	return s.gateway.With().Str("service", s.spec.String()).Logger()
}

// closeListener undoes openService.
func (s *service) closeListener() {
	if s.stream != nil {
		s.stream.close()
	} else {
		s.packet.close()
	}
}

// start makes the server and serves.
func (s *service) start(t *tunnel) {
	s.mu.Lock()
	s.tunnel = t
	s.mu.Unlock()
	s.serve()
	s.log().Info().Str("listen", s.status().Listen).Msg("service is up")
}

// serve lends the listener to a server of the right kind.
func (s *service) serve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	options := s.options()
	if s.packet != nil {
		s.server = must(proxy.NewUDPForward(s.spec.Target, options))
		s.quit = make(chan struct{})
		forward, quit := s.server.(*proxy.UDPForward), s.quit
		s.serving.Go(func() { s.servePackets(forward, quit) })
		return
	}
	var stream *proxy.Server
	switch s.spec.Kind {
	case SOCKS5:
		stream = must(proxy.NewSOCKS5(options))
	case HTTP:
		stream = must(proxy.NewHTTP(options))
	default:
		stream = must(proxy.NewTCPForward(s.spec.Target, options))
	}
	s.server, s.gate = stream, lend(s.stream)
	gate := s.gate
	s.serving.Go(func() { stream.Serve(s.flows, gate) }) // ends by Close of the gate or by flows
}

// must panics on options that options has not filled in.
func must[T any](server T, err error) T {
	if err != nil {
		panic("gateway: " + err.Error())
	}
	return server
}

// servePackets serves until the server is shut down, and mends the socket when it dies.
func (s *service) servePackets(forward *proxy.UDPForward, quit chan struct{}) {
	for {
		err := forward.Serve(s.flows, s.packet.now())
		if errors.Is(err, proxy.ErrServerClosed) || s.flows.Err() != nil || !s.packet.mend(err, quit) {
			return
		}
	}
}

// alter makes the service another one in the same place. Flows that run go on as they began.
func (s *service) alter(spec Service, t *tunnel) {
	s.mu.Lock()
	old := s.spec
	s.spec, s.tunnel = spec, t
	options, server := s.options(), s.server
	s.mu.Unlock()
	if old.shared() != spec.shared() {
		s.setMode(spec)
	}
	if old.Kind != spec.Kind {
		s.replace()
		return
	}
	must(0, server.Update(options))
}

// setMode lets other users of this machine at a unix socket, or locks them out.
func (s *service) setMode(spec Service) {
	if spec.Listen.Network != "unix" {
		return
	}
	if err := os.Chmod(spec.Listen.Path, socketMode(spec.shared())); err != nil {
		s.log().Warn().Err(err).Msg("mode of the socket could not be changed")
	}
}

// replace puts a server of the new kind in the place of the old one, which keeps its flows.
func (s *service) replace() {
	s.mu.Lock()
	s.old = append(slices.DeleteFunc(s.old, func(o server) bool { return o.Counters().Live == 0 }), s.server)
	gate := s.gate
	s.mu.Unlock()
	gate.Close()
	s.serve()
}

// pause closes the listener, and may be called again. Flows over streams go on; those over
// datagrams end, for they have no other socket.
func (s *service) pause() {
	if s.packet != nil {
		s.stop(ended())
		return
	}
	s.gate.Close()
	s.stream.close()
}

// resume undoes pause. Should the place be taken meanwhile, it tries until it is free.
func (s *service) resume() {
	if s.packet != nil {
		s.serve()
		return
	}
	s.stream.again() // if it fails, the next Accept goes on trying
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = lend(s.stream)
	gate, stream := s.gate, s.server.(*proxy.Server)
	s.serving.Go(func() { stream.Serve(s.flows, gate) })
}

// ended returns a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// servers are all that still have flows.
func (s *service) servers() []server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.old), s.server)
}

// live counts flows that have not ended.
func (s *service) live() (n int) {
	for _, server := range s.servers() {
		n += server.Counters().Live
	}
	return n
}

// cut counts flows that were ended.
func (s *service) cut() (n uint64) {
	for _, server := range s.servers() {
		n += server.Counters().Cut[proxy.ReasonShutdown]
	}
	return n
}

// stop takes no new flow from this moment, gives the old ones until ctx ends, and returns
// when all of the service has ended, how many flows were cut. A flow of datagrams that rests
// is not cut.
func (s *service) stop(whole context.Context) (cut uint64) {
	s.mu.Lock()
	servers, gate, quit := append(slices.Clone(s.old), s.server), s.gate, s.quit
	s.quit = nil
	s.mu.Unlock()
	before := s.cut()
	if gate != nil {
		gate.Close()
		s.stream.close()
	}
	if quit != nil {
		close(quit)
	}
	ctx, cancel := context.WithCancel(whole)
	var watching, ending sync.WaitGroup
	if s.packet != nil {
		watching.Go(func() { cancelWhenQuiet(ctx, cancel, servers[0]) })
	}
	for _, server := range servers {
		ending.Go(func() { server.Shutdown(ctx) }) // its error says only that flows were left
	}
	ending.Wait()
	cancel()
	watching.Wait()
	s.serving.Wait()
	if s.packet != nil && whole.Err() == nil {
		return 0
	}
	return s.cut() - before
}

// quietTime is after what silence of all its clients a UDP service that stops is done: a
// flow of datagrams has no end that could be seen, and would hold up every stop.
const quietTime = 3 * time.Second

// cancelWhenQuiet calls cancel once no datagram has moved for quietTime.
func cancelWhenQuiet(ctx context.Context, cancel context.CancelFunc, server server) {
	tick := time.NewTicker(quietTime)
	defer tick.Stop()
	before := server.Counters()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := server.Counters()
		if now.DatagramsSent == before.DatagramsSent && now.DatagramsReceived == before.DatagramsReceived {
			cancel()
			return
		}
		before = now
	}
}

// dialTime is how long a target has to answer. It holds the tries of a handshake that comes late
// and ends before most clients give up, so that they learn why.
const dialTime = 20 * time.Second

// options says how flows are carried, and where. Call it with mu held.
func (s *service) options() proxy.Options {
	o := proxy.Options{
		Users:       s.spec.Users,
		DialTimeout: dialTime,
		IdleTimeout: max(s.spec.Idle, 0),
		UDPTimeout:  s.spec.Idle,
		Buffers:     s.buffers,
		Log:         s.named(),
	}
	switch s.spec.Kind {
	case Publish:
		o.Dialer = localDialer{s.spec.Target}
	case Forward:
		o.Dialer = targetDialer{s.tunnel, s.spec.Target}
	default:
		o.Dialer, o.Packets = s.tunnel, s.tunnel
	}
	return o
}

// targetDialer dials one target, whatever a forward was made with: it changes under it.
type targetDialer struct {
	proxy.Dialer
	target string
}

func (d targetDialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return d.Dialer.DialContext(ctx, network, d.target)
}

// localDialer dials one target on this machine's networks.
type localDialer struct{ target string }

func (d localDialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	var dialer net.Dialer
	if path, ok := strings.CutPrefix(d.target, "unix:"); ok {
		return dialer.DialContext(ctx, "unix", path)
	}
	return dialer.DialContext(ctx, network, d.target)
}

func (s *service) status() ServiceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ServiceStatus{
		Kind:    s.spec.Kind,
		Tunnel:  s.spec.Tunnel,
		Network: s.spec.Network(),
		Listen:  s.listening(),
		Target:  s.spec.Target,
		Users:   len(s.spec.Users.Names()),
		Source:  s.spec.Source,
		Up:      s.trouble() == nil,
	}
	if s.server != nil {
		st.Traffic = trafficOf(s.server.Counters())
	}
	for _, old := range s.old {
		st.Flows += old.Counters().Live
	}
	return st
}

// trouble returns what is wrong with the listener, or nil.
func (s *service) trouble() *Problem {
	if s.stream != nil {
		return s.stream.trouble()
	}
	return s.packet.trouble()
}

// problems returns what is wrong with the listener.
func (s *service) problems() []Problem {
	p := s.trouble()
	if p == nil {
		return nil
	}
	spec, _ := s.now()
	return []Problem{{Subject: spec.String(), Since: p.Since, Reason: p.Reason}}
}

// listening is the place as it is open, with the port that the system chose.
func (s *service) listening() string {
	l := s.spec.Listen
	if s.spec.Kind == Publish || l.Network == "unix" {
		return l.String()
	}
	if s.stream != nil {
		return s.stream.now().Addr().String()
	}
	return s.packet.now().LocalAddr().String()
}
