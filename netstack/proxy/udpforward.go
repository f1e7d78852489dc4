package proxy

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	maxMappingWaiting = 128      // datagrams that wait for one mapping's target
	maxWaitingBytes   = 16 << 20 // of all datagrams that wait for all targets
)

// UDPForward passes datagrams between clients and one target. Each client has a mapping: a
// socket towards the target from which only this client's datagrams come, in order. Make it
// with NewUDPForward.
type UDPForward struct {
	target  string
	opts    atomic.Pointer[Options]
	counts  counts
	upset   complaints
	waiting atomic.Int64    // bytes in queues
	closing context.Context // ends when Shutdown begins
	shut    context.CancelFunc

	mu       sync.Mutex
	mappings map[mappingKey]*mapping
	// Mappings by their last datagram, newest in front: those that never got an answer, and
	// those that did. A flood from made-up addresses thus sheds only itself.
	unanswered, answered *list.List
	work                 sync.WaitGroup // mappings; Add only under mu and before closing ends
	serving              sync.WaitGroup // Serve calls, likewise
}

// mappingKey is what clients are told apart by: their address, and the one of ours that they
// talk to.
type mappingKey struct {
	socket *udpSocket
	client netip.AddrPort
	local  netip.Addr
}

// NewUDPForward makes a forward to one target, HOST:PORT. An error says what is wrong with
// the target or missing in the options.
func NewUDPForward(target string, o Options) (*UDPForward, error) {
	d, err := hostPort(target, 0)
	if err != nil {
		return nil, fmt.Errorf("target %w: write 10.0.0.53:53, [fd00::53]:53 or name.example:53", err)
	}
	u := &UDPForward{
		target:     d.String(),
		mappings:   make(map[mappingKey]*mapping),
		unanswered: list.New(),
		answered:   list.New(),
	}
	u.closing, u.shut = context.WithCancel(context.Background())
	if err := u.Update(o); err != nil {
		return nil, fmt.Errorf("udp forward: %w", err)
	}
	return u, nil
}

// Update swaps all options for mappings that begin from now on. Those that there are keep
// theirs. An error says what is missing in o, and then nothing changes.
func (u *UDPForward) Update(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	u.opts.Store(&o)
	return nil
}

// Counters returns a snapshot.
func (u *UDPForward) Counters() Counters {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts.snapshot(len(u.mappings))
}

// Live returns the number of mappings.
func (u *UDPForward) Live() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.mappings)
}

// Serve forwards what comes to pc until ctx ends, Shutdown has drained the mappings, or pc
// fails, and waits for the mappings that it began. It owns pc and closes it. Several sockets
// may be served at one time.
//
// The error is never nil: ErrServerClosed after Shutdown, the cause of ctx, or what the
// socket said.
func (u *UDPForward) Serve(ctx context.Context, pc net.PacketConn) error {
	defer pc.Close()
	if !u.enter() {
		return ErrServerClosed
	}
	defer u.serving.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctx, func() { pc.Close() })
	defer stop()
	drained := context.AfterFunc(u.closing, func() { u.work.Wait(); pc.Close() })
	defer drained()
	var mine sync.WaitGroup
	defer mine.Wait()
	defer cancel(nil)
	err := u.readAll(ctx, newUDPSocket(pc), &mine)
	switch {
	case u.closing.Err() != nil:
		return ErrServerClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("read from %s: %w", pc.LocalAddr(), err)
}

func (u *UDPForward) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing.Err() != nil {
		return false
	}
	u.serving.Add(1)
	return true
}

// readAll hands each datagram to its mapping.
func (u *UDPForward) readAll(ctx context.Context, socket *udpSocket, mine *sync.WaitGroup) error {
	buffers := u.opts.Load().Buffers
	buf := buffers.get(largeBuffer)
	defer buffers.put(buf)
	for {
		n, from, local, err := socket.read(buf)
		switch {
		case err != nil && passing(err):
			continue
		case err != nil:
			return err
		}
		if m := u.mappingFor(ctx, mappingKey{socket, from, local}, mine); m != nil {
			m.push(buf[:n])
		}
	}
}

// mappingFor finds or begins the mapping of a client. It returns nil, and counts the
// datagram, when there is to be none.
func (u *UDPForward) mappingFor(ctx context.Context, k mappingKey, mine *sync.WaitGroup) *mapping {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m := u.mappings[k]; m != nil {
		u.touch(m)
		return m
	}
	if u.closing.Err() != nil {
		u.counts.dropped.add(ReasonShutdown)
		return nil
	}
	o := u.opts.Load()
	if o.MaxMappings > 0 && len(u.mappings) >= o.MaxMappings {
		u.shedOldest()
	}
	m := newMapping(u, o, k)
	u.mappings[k] = m
	m.place = u.unanswered.PushFront(m)
	u.counts.accepted.Add(1)
	u.work.Add(1)
	mine.Go(func() {
		defer u.work.Done()
		m.run(ctx)
	})
	return m
}

// touch notes that a mapping is in use.
func (u *UDPForward) touch(m *mapping) {
	if m.wasAnswered {
		u.answered.MoveToFront(m.place)
	} else {
		u.unanswered.MoveToFront(m.place)
	}
}

// noteAnswer notes a datagram from the target.
func (u *UDPForward) noteAnswer(m *mapping) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.mappings[m.key] != m:
	case m.wasAnswered:
		u.answered.MoveToFront(m.place)
	default:
		u.unanswered.Remove(m.place)
		m.wasAnswered = true
		m.place = u.answered.PushFront(m)
	}
}

func (u *UDPForward) shedOldest() {
	oldest := u.unanswered.Back()
	if oldest == nil {
		oldest = u.answered.Back()
	}
	u.counts.cut.add(ReasonLimit)
	u.forget(oldest.Value.(*mapping))
}

// forget takes a mapping out of the books and ends it. u.mu is held.
func (u *UDPForward) forget(m *mapping) {
	if u.mappings[m.key] != m {
		return
	}
	delete(u.mappings, m.key)
	if m.wasAnswered {
		u.answered.Remove(m.place)
	} else {
		u.unanswered.Remove(m.place)
	}
	m.cancel(nil)
}

// Shutdown takes no new clients, waits until the mappings of the old ones have been idle for
// Options.UDPTimeout, and when ctx ends first, ends those that are left. It returns nil when
// every mapping ended by itself and the cause of ctx otherwise; in both cases nothing runs
// any more. It may be called more than once.
func (u *UDPForward) Shutdown(ctx context.Context) error {
	u.mu.Lock()
	u.shut()
	u.mu.Unlock()
	defer u.upset.end()
	err := drain(ctx, &u.work, u.abortAll)
	u.serving.Wait()
	return err
}

func (u *UDPForward) abortAll() (cut int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	cut = len(u.mappings)
	for _, m := range u.mappings {
		u.counts.cut.add(ReasonShutdown)
		u.forget(m)
	}
	return cut
}

// mapping is one client of a UDPForward.
type mapping struct {
	u   *UDPForward
	o   *Options
	key mappingKey

	place       *list.Element // under u.mu
	wasAnswered bool          // under u.mu

	queue  chan []byte // buffers of o.Buffers
	idle   *idleTimer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newMapping(u *UDPForward, o *Options, k mappingKey) *mapping {
	m := &mapping{u: u, o: o, key: k, queue: make(chan []byte, maxMappingWaiting)}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.idle = startIdle(o.UDPTimeout, m.end)
	return m
}

// end ends the mapping from anywhere.
func (m *mapping) end() {
	m.u.mu.Lock()
	defer m.u.mu.Unlock()
	m.u.forget(m)
}

// push queues a datagram of the client for the target. It does not wait, so that a target
// which is slow to reach holds up no other client.
func (m *mapping) push(b []byte) {
	m.idle.touch()
	if m.u.waiting.Add(int64(len(b))) > maxWaitingBytes {
		m.drop(b, ReasonQueueFull)
		return
	}
	kept := m.o.Buffers.get(len(b))[:len(b)]
	copy(kept, b)
	select {
	case m.queue <- kept:
	default:
		m.drop(kept, ReasonQueueFull)
		m.o.Buffers.put(kept)
	}
	if m.ctx.Err() != nil { // it ended meanwhile, and may have emptied the queue already
		m.empty(ReasonCanceled)
	}
}

// drop counts a datagram that push had counted as waiting.
func (m *mapping) drop(b []byte, r Reason) {
	m.u.waiting.Add(-int64(len(b)))
	m.u.counts.dropped.add(r)
}

// run reaches the target and carries datagrams until the mapping ends.
func (m *mapping) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { m.cancel(context.Cause(ctx)) })
	defer stop()
	defer m.idle.stop()
	log := m.o.Log.With().Str("client", m.key.client.String()).Str("target", m.u.target).Logger()
	reason := ReasonShutdown
	conn, err := m.dial()
	if err == nil {
		log.Debug().Msg("mapping opened")
		m.carry(conn)
	} else if m.ctx.Err() == nil {
		reason = DialReason(err)
		m.u.counts.refused.add(reason)
		m.u.upset.add(reason, grievance{m.o.Log, m.key.client.Addr().String(), m.u.target, err})
	}
	m.end()
	m.empty(reason)
	log.Debug().Err(err).Msg("mapping closed")
}

func (m *mapping) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.o.DialTimeout)
	defer cancel()
	conn, err := m.o.Dialer.DialContext(ctx, "udp", m.u.target)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	m.u.counts.opened.Add(1)
	return conn, nil
}

// empty drops what waits for a mapping that has ended.
func (m *mapping) empty(r Reason) {
	for {
		select {
		case b := <-m.queue:
			m.drop(b, r)
			m.o.Buffers.put(b)
		default:
			return
		}
	}
}

// carry works until the mapping ends or its socket fails, and closes the socket.
func (m *mapping) carry(conn net.Conn) {
	stop := context.AfterFunc(m.ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	var answers sync.WaitGroup
	answers.Go(func() {
		m.answer(conn)
		m.end()
	})
	defer answers.Wait()
	for {
		select {
		case <-m.ctx.Done():
			return
		case b := <-m.queue:
			m.send(conn, b)
			m.u.waiting.Add(-int64(len(b)))
			m.o.Buffers.put(b)
		}
	}
}

// send sends one datagram to the target. A socket may report by it that an earlier one was
// refused, and then has not sent it: it is sent again.
func (m *mapping) send(conn net.Conn, b []byte) {
	_, err := conn.Write(b)
	if errors.Is(err, syscall.ECONNREFUSED) {
		m.u.counts.dropped.add(ReasonRefused)
		_, err = conn.Write(b)
	}
	switch {
	case m.ctx.Err() != nil:
		m.u.counts.dropped.add(ReasonShutdown)
	case err != nil:
		m.u.counts.dropped.add(sendReason(err))
	default:
		m.u.counts.datagramsSent.Add(1)
		m.u.counts.sent.Add(uint64(len(b)))
	}
}

// answer passes what the target sends to the client. That nobody listens there is counted,
// and does not end the mapping: somebody may soon.
func (m *mapping) answer(conn net.Conn) {
	buf := m.o.Buffers.get(largeBuffer)
	defer m.o.Buffers.put(buf)
	for {
		n, err := conn.Read(buf)
		switch {
		case err == nil:
			m.tell(buf[:n])
		case m.ctx.Err() != nil:
			return
		case passing(err):
			m.u.counts.dropped.add(sendReason(err))
		default:
			return
		}
	}
}

func (m *mapping) tell(b []byte) {
	m.idle.touch()
	m.u.noteAnswer(m)
	if err := m.key.socket.write(b, m.key.client, m.key.local); err != nil {
		m.u.counts.dropped.add(sendReason(err))
		return
	}
	m.u.counts.datagramsReceived.Add(1)
	m.u.counts.received.Add(uint64(len(b)))
}
