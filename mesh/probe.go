package mesh

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
)

const (
	probeWait     = time.Second     // for an answer
	probeEvery    = 5 * time.Second // of a path that is well, in a small mesh
	probePace     = time.Second / 2 // in a large one: the time that each further path adds to that
	probeSlow     = 15 * time.Second
	lostToDown    = 4                // answers missed in a row until a path counts as down
	accuseAfter   = 5 * time.Second  // how long a leader's path is down before it is told
	pardonAfter   = 30 * time.Second // how long it must be well again before that is taken back
	sessionLife   = 3 * time.Minute  // Reject-After-Time of the WireGuard paper, section 6.1
	renewAfter    = 10 * time.Second // between new sessions that are asked for on one path
	observeFactor = 300              // how much longer the pause after a look is than the look
	stageEvery    = 2 * time.Minute  // between packets that wait for a session; one waits 90 s at most
	stageMost     = 256              // members from which on only the first such packet is sent
	lostToMove    = lostToDown + 2   // answers missed in a row until another endpoint is tried
	moveAgain     = time.Minute      // after all were tried, until the first is again
)

// prober tests the paths to members by a small echo inside the tunnel, and answers those of
// others. A path that is well is asked seldom, and the less often the more there are; one answer
// missed, or a device that sends and hears nothing, and it is asked each second.
//
// set and the readers are called by the agent; run has the only goroutines.
type prober struct {
	listen func(netip.AddrPort) (net.PacketConn, error)
	device Device
	wake   func() // the agent shall look again
	log    zerolog.Logger

	mu        sync.Mutex
	targets   map[device.PublicKey]*target
	byAddr    map[netip.Addr]*target
	outside   outsiders
	accused   map[string]accusation // by the name of a leader
	addresses []netip.Addr          // of this node
	leads     uint64                // this node's claim, for those who ask
	sockets   map[netip.Addr]net.PacketConn
	fresh     bool          // a path has come up: what the device knows of it is asked at once
	kick      chan struct{} // something is due earlier than thought
}

// target is one path that is tested.
type target struct {
	Probe
	verdict   Verdict
	since     time.Time
	roundTrip time.Duration
	loss      float64 // moving average
	missed    int     // answers in a row
	due       time.Time
	asked     time.Time // when the probe under way was sent; zero: none is
	sequence  uint64
	nonce     uint64
	renewed   time.Time       // when a new session was last asked for
	staged    time.Time       // when a packet was last sent without one
	endpoint  device.Endpoint // that the device is told to use
	failed    []device.Endpoint
	failedAt  time.Time        // the last of them
	peer      device.PeerState // as last seen
	probed    time.Time        // when a packet was last sent
	doubted   bool             // its endpoint is about to be given up
	leads     uint64           // its claim, as it last said
}

// accusation is that a leader does not answer.
type accusation struct {
	told     bool      // to the others
	down     time.Time // since when it is; zero: it answers
	up       time.Time // since when it answers again, or is not tested
	untested bool
}

func newProber(listen func(netip.AddrPort) (net.PacketConn, error), d Device, wake func(), log zerolog.Logger) *prober {
	return &prober{
		listen: listen, device: d, wake: wake, log: log,
		targets: make(map[device.PublicKey]*target),
		byAddr:  make(map[netip.Addr]*target),
		accused: make(map[string]accusation),
		sockets: make(map[netip.Addr]net.PacketConn),
		kick:    make(chan struct{}, 1),
	}
}

// set tells which paths there are. What is known of those that stay is kept.
func (p *prober) set(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	endpoints := make(map[device.PublicKey]device.Endpoint, len(plan.Device.Peers))
	for _, peer := range plan.Device.Peers {
		endpoints[peer.PublicKey] = peer.Endpoint
	}
	targets := make(map[device.PublicKey]*target, len(plan.Probes))
	p.byAddr = make(map[netip.Addr]*target, len(plan.Probes))
	for i, probe := range plan.Probes {
		t := p.targets[probe.Key]
		if t == nil {
			t = &target{verdict: Unknown, due: now.Add(time.Duration(i) * probePace / 50), nonce: random()}
		}
		t.Probe = probe
		if e := endpoints[probe.Key]; e != t.endpoint {
			t.endpoint, t.due, t.doubted = e, now, false // it is another path now
			t.missed = t.patience(now)
		}
		targets[probe.Key], p.byAddr[probe.Address] = t, t
	}
	p.targets, p.outside = targets, p.outside.follow(plan)
	p.addresses, p.leads = nil, plan.Publish.Leads
	for _, a := range plan.Host.Addresses {
		p.addresses = append(p.addresses, a.Addr())
	}
	p.hurry()
}

func (p *prober) hurry() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// run tests and answers until ctx is done.
func (p *prober) run(ctx context.Context) error {
	var readers sync.WaitGroup
	defer readers.Wait()
	defer p.closeSockets()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var observed, looked time.Time // when the device is looked at next, and next for a doubt
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.kick:
		case <-timer.C:
		}
		p.openSockets(&readers)
		if now := time.Now(); p.takeFresh() || !now.Before(observed) {
			observed = now.Add(p.observe())
		}
		next := p.round()
		if p.doubtful() {
			if now := time.Now(); !now.Before(looked) {
				pause := p.observe()
				p.settle()
				observed, looked = now.Add(pause), now.Add(pause-probeEvery+probeWait)
				next = now // what is not doubted any more may be due
			} else {
				next = looked
			}
		}
		timer.Reset(max(0, min(time.Until(observed), time.Until(next))))
	}
}

func (p *prober) takeFresh() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh := p.fresh
	p.fresh = false
	return fresh
}

// openSockets follows the addresses of the node. One that is not on the interface yet is tried
// again at the next round.
func (p *prober) openSockets(readers *sync.WaitGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, c := range p.sockets {
		if !slices.Contains(p.addresses, a) {
			_ = c.Close() // it is not used any more, whatever it says
			delete(p.sockets, a)
		}
	}
	for _, a := range p.addresses {
		if p.sockets[a] != nil {
			continue
		}
		c, err := p.listen(netip.AddrPortFrom(a, ProbePort))
		if err != nil {
			p.log.Debug().Err(err).Stringer("address", a).Msg("no socket for probes yet")
			continue
		}
		p.sockets[a] = c
		readers.Go(func() { p.read(c) })
	}
}

func (p *prober) closeSockets() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.sockets {
		_ = c.Close() // nothing is lost with it
	}
}

// read answers requests of members, and takes in their answers, until the socket is closed.
func (p *prober) read(c net.PacketConn) {
	b := make([]byte, echoLen+1)
	for {
		n, from, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error of an earlier probe
		}
		e, ok := parseEcho(b[:n])
		udp, isUDP := from.(*net.UDPAddr)
		if !ok || !isUDP {
			continue
		}
		a := udp.AddrPort()
		if e.answer {
			p.answered(a.Addr().Unmap(), e)
		} else if leads, known := p.known(a.Addr().Unmap()); known {
			e.answer, e.leads = true, leads
			_, _ = c.WriteTo(e.append(nil), from) // who misses it asks again
		}
	}
}

// known reports whether a member asks, and what it is told.
func (p *prober) known(a netip.Addr) (leads uint64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leads, p.byAddr[a] != nil
}

// answered takes in an answer.
func (p *prober) answered(from netip.Addr, e echo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.byAddr[from]
	if t == nil || e.nonce != t.nonce || e.sequence != t.sequence || t.asked.IsZero() {
		return
	}
	now := time.Now()
	t.roundTrip = now.Sub(t.asked)
	t.asked, t.missed = time.Time{}, 0
	t.loss *= 0.9
	t.due = now.Add(p.interval())
	t.failed = nil
	if e.leads != t.leads {
		t.leads = e.leads
		p.wake()
	}
	p.judge(t, Up, now)
}

// interval is how often a path that is well is asked.
func (p *prober) interval() time.Duration {
	return max(probeEvery, time.Duration(len(p.targets))*probePace)
}

// judge notes a verdict, and wakes the agent when it is a new one. The caller holds the lock.
func (p *prober) judge(t *target, v Verdict, now time.Time) {
	if t.verdict == v {
		return
	}
	e := p.log.Info()
	if v != Up {
		e = p.log.Warn()
	}
	if t.verdict != Unknown || v != Up {
		e.Str("peer", t.Key.Short()).Str("name", t.Name).Str("old", string(t.verdict)).Str("new", string(v)).Msg("path changed")
	}
	t.verdict, t.since = v, now
	p.wake()
	if v == Up {
		p.fresh = true
		p.hurry()
	}
}

// round sends what is due and counts what was not answered. It returns when there is more to do.
func (p *prober) round() (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	next = now.Add(time.Minute)
	for _, t := range p.targets {
		if !t.asked.IsZero() && now.Sub(t.asked) >= probeWait {
			p.miss(t, now)
		}
		if t.asked.IsZero() && !now.Before(t.due) {
			p.ask(t, now)
		}
		at := t.due
		if !t.asked.IsZero() {
			at = t.asked.Add(probeWait)
		}
		if at.Before(next) {
			next = at
		}
	}
	if at := p.accuse(now); at.Before(next) {
		next = at
	}
	return next
}

// ask sends one probe. Where the tunnel has no session, the device keeps a packet until there is
// one, 64 KiB for each: then only a session is asked for, and a packet goes along seldom, and not
// at all in a large mesh. The caller holds the lock.
func (p *prober) ask(t *target, now time.Time) {
	if t.Tunnel && !t.hasSession(now) {
		if now.Sub(t.staged) < stageEvery || len(p.targets) > stageMost && !t.staged.IsZero() {
			t.asked = now
			p.renew(t, now)
			return
		}
		t.staged = now
	}
	for a, c := range p.sockets {
		if a.Is4() == t.Address.Is4() {
			t.sequence++
			t.asked, t.probed = now, now
			to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.Address, ProbePort))
			_, _ = c.WriteTo(echo{sequence: t.sequence, nonce: t.nonce}.append(nil), to) // not sent is not answered
			return
		}
	}
	t.due = now.Add(probeWait) // no socket of the family yet
}

// miss counts an answer that did not come. The caller holds the lock.
func (p *prober) miss(t *target, now time.Time) {
	t.asked = time.Time{}
	t.missed++
	t.loss = t.loss*0.9 + 0.1
	t.due = now
	if t.missed < lostToDown {
		return
	}
	t.due = now.Add(min(time.Duration(t.missed-lostToDown)*time.Second, probeSlow))
	verdict := HandshakeStale
	if t.hasSession(now) {
		verdict = NoReply
	}
	p.judge(t, verdict, now)
	if t.Tunnel {
		p.repair(t, now)
	}
}

// hasSession reports whether the device had one with the member when it was last looked at.
func (t *target) hasSession(now time.Time) bool {
	return !t.peer.LastHandshake.IsZero() && now.Sub(t.peer.LastHandshake) < sessionLife
}

// patience is how many answers count as missed where another endpoint is begun with. Without a
// session that is none: both ends may call at once, and then wait for 5 s (Rekey-Timeout).
func (t *target) patience(now time.Time) int {
	if !t.hasSession(now) {
		return 0
	}
	return min(t.missed, lostToDown)
}

// observe takes in what the device knows of its peers. It returns when to do that again: what it
// costs is kept below a three hundredth of one core, also while endpoints are doubted.
func (p *prober) observe() time.Duration {
	start := time.Now()
	state, err := p.device.State()
	if err != nil {
		return probeEvery // the device is being closed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for _, peer := range state.Peers {
		if t := p.targets[peer.PublicKey]; t != nil {
			changed = p.notice(t, peer, start) || changed
		}
		changed = p.outside.notice(peer, start) || changed
	}
	if changed {
		p.wake()
	}
	return probeEvery + observeFactor*time.Since(start)
}

// notice compares what the device knew of a peer with what it knows now: a peer that is sent to
// and not heard of is asked at once. It reports whether the peer moved.
func (p *prober) notice(t *target, now device.PeerState, at time.Time) (moved bool) {
	before := t.peer
	t.peer = now
	if now.LastHandshake.After(before.LastHandshake) && t.verdict != Up {
		t.due, t.asked = at, time.Time{} // there is a session now
	}
	silent := now.TransmitBytes > before.TransmitBytes && now.ReceiveBytes == before.ReceiveBytes
	if silent && t.verdict == Up && t.asked.IsZero() && before.TransmitBytes > 0 {
		t.due = at
	}
	return now.Endpoint != before.Endpoint || now.Declared != before.Declared
}

// findings are what the planner and the others are told.
type findings struct {
	paths       map[device.PublicKey]Path
	unreachable []string
}

func (p *prober) findings() findings {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := findings{paths: make(map[device.PublicKey]Path, len(p.targets))}
	for key, t := range p.targets {
		f.paths[key] = Path{Verdict: t.verdict, Failed: slices.Clone(t.failed), Declared: t.peer.Declared, Live: t.live(), Leads: t.leads}
	}
	for name, a := range p.accused {
		if a.told {
			f.unreachable = append(f.unreachable, name)
		}
	}
	slices.Sort(f.unreachable)
	return f
}

// live is where packets of a member with a live session come from.
func (t *target) live() netip.AddrPort {
	if t.verdict != Up || t.peer.LastHandshake.IsZero() {
		return netip.AddrPort{}
	}
	return t.peer.Endpoint
}

func (p *prober) members() (list []MemberStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		list = append(list, MemberStatus{Name: t.Name, Key: t.Key, Verdict: t.verdict, RoundTrip: t.roundTrip, Loss: t.loss, Since: t.since})
	}
	slices.SortFunc(list, func(a, b MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}
