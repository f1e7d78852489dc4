package device

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	wg "golang.zx2c4.com/wireguard/device"
)

// path is where one peer is to be reached (requirements A4 and A5).
//
//	declared --resolve--> candidates --write--> applied
//	                                              |   an authenticated packet
//	                                              v   from elsewhere
//	                                            live (wireguard-go's)
//
// A reconcile writes only when the declaration changes. The supervisor writes when the
// device has no endpoint yet, and when a session is dead and a handshake goes unanswered:
// then it tries the next candidate, of which the last live address is one.
type path struct {
	declared Endpoint
	applied  netip.AddrPort // what we wrote last; invalid: nothing yet
	heard    bool           // a handshake came in since: live may differ from applied
	spoke    bool           // the peer was heard since the device was opened
	lastLive netip.AddrPort // where the peer was before we wrote over it

	tries   int       // addresses tried in this silence
	notTill time.Time // no other address before this
	problem string    // of the name; "": none
}

// declare notes what the operator wrote and what was written for it.
func (p *path) declare(e Endpoint, written netip.AddrPort) {
	p.declared, p.problem = e, ""
	p.tries, p.notTill = 0, time.Time{}
	if written.IsValid() {
		p.applied, p.heard = written, false
	} else if !e.IsZero() {
		p.applied = netip.AddrPort{} // a name whose first answer has not come
	}
}

const (
	firstTry = time.Second // before the second address of a peer never reached
	// An initiation that wireguard-go sent while the address changed may have gone to the
	// new one. A second within 50 ms counts as a flood there, and makes the answer to the
	// first one void here: nothing would stand.
	settle    = 100 * time.Millisecond
	maxTry    = 5 * time.Minute // between two addresses of a peer long silent
	saveAfter = time.Second     // changes of live endpoints are gathered so long
	// To know one live address the whole device is read, under the lock. So many times as long
	// as that took it is left to others, and news are gathered.
	restAfterRead = 4
)

// turn is one look of the supervisor at everything. What it wants done is done after the
// lock is released.
type turn struct {
	*Device
	now     time.Time
	next    time.Time                    // when to look again; zero: when something happens
	live    map[PublicKey]netip.AddrPort // nil: not read
	stood   map[PublicKey]time.Time      // since when each session stands; read with live
	changes []Change
	after   []func()

	received map[PublicKey]uint64 // bytes; read with live
	rest     time.Duration        // after a reading, before the next turn
}

// supervise is the device's one goroutine: it resolves names, moves endpoints of silent
// peers, greets and saves. At rest it sleeps.
func (d *Device) supervise() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, rest, ok := d.look()
		if !ok {
			return
		}
		if rest > 0 {
			timer.Reset(rest)
			select {
			case <-d.ctx.Done():
				return
			case <-timer.C:
			}
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(next), 0))
		}
		select {
		case <-d.ctx.Done():
			return
		case <-d.wake:
		case <-d.tracker.wake:
		case <-timer.C:
		}
	}
}

func (d *Device) look() (next time.Time, rest time.Duration, ok bool) {
	if d.acquire(d.ctx) != nil {
		return next, 0, false
	}
	t := turn{Device: d, now: time.Now()}
	t.handshakes()
	t.answers()
	t.hurries()
	t.initiations()
	t.doubts()
	t.confirmations()
	t.refusals()
	t.greet()
	t.announcements()
	t.saveWhenDue()
	t.next = earlier(t.next, d.names.ask(d.ctx, t.now))
	d.release()
	for _, f := range t.after {
		f()
	}
	d.tell(t.changes)
	return t.next, t.rest, true
}

// tell reports changes that nobody asked for by a call.
func (d *Device) tell(changes []Change) {
	if len(changes) == 0 || d.onChange == nil {
		return
	}
	d.telling.Lock()
	defer d.telling.Unlock()
	d.onChange(changes)
}

// handshakes acts on what wireguard-go told.
func (t *turn) handshakes() {
	for peer, n := range t.tracker.take() {
		p := t.model.byWG[peer]
		if p == nil {
			t.tracker.forget(peer) // removed, with a timer still running
			continue
		}
		t.mistrust(p, n)
		t.watchOver(p, n)
		if n.completed {
			t.answered(p)
			continue
		}
		alive := t.tracker.get(peer).alive(t.now)
		switch {
		case alive && n.retried:
			t.unanswered(p)
		case alive:
		case n.unsent:
			p.path.notTill = time.Time{}
			t.tryNext(p, "the packet cannot be sent there")
		case n.retried:
			t.names.refresh(p.path.declared, t.now)
			t.tryNext(p, "no handshake there")
		case n.first:
			t.silence(p)
		}
	}
}

func (t *turn) answered(p *peer) {
	if !p.path.spoke {
		t.dirty.Store(true)
	}
	p.path.heard, p.path.spoke = true, true
	p.path.tries, p.path.notTill = 0, time.Time{}
	delete(t.model.hurry, p)
}

// silence is the first handshake towards a peer without a session. A name that has moved on
// is followed at once; with several addresses the second one gets its turn soon.
func (t *turn) silence(p *peer) {
	t.names.refresh(p.path.declared, t.now)
	known := t.names.addresses(p.path.declared)
	if len(known) > 0 && !contains(known, p.path.applied) {
		t.move(p, known[0], "the name has moved")
		return
	}
	t.hurryOn(p)
}

// hurryOn gives the next address its turn soon, until each has had one.
func (t *turn) hurryOn(p *peer) {
	if n := len(t.candidates(p)); n > 1 && p.path.tries < n-1 {
		when := t.now.Add(firstTry)
		t.model.hurry[p] = when
		t.next = earlier(t.next, when)
	}
}

// unanswered is a handshake without answer while a session stands. A roamed address is left
// alone. One that we took from a name is given up when the name no longer has it.
func (t *turn) unanswered(p *peer) {
	t.names.refresh(p.path.declared, t.now)
	known := t.names.addresses(p.path.declared)
	if t.tracker.get(p.wg).tries < 2 || len(known) == 0 || contains(known, p.path.applied) {
		return
	}
	if t.liveOf(p) == p.path.applied {
		t.move(p, known[0], "no answer, and the name has moved")
	}
}

// answers takes in what the resolver said.
func (t *turn) answers() {
	hosts := t.names.collect(t.now)
	if len(hosts) == 0 {
		return
	}
	for _, p := range t.model.peers {
		h := hosts[p.path.declared.Host]
		if h == nil {
			continue
		}
		t.note(p, h.problem())
		known := t.names.addresses(p.path.declared)
		switch {
		case len(known) == 0 || contains(known, p.path.applied):
		case !p.path.applied.IsValid():
			t.move(p, known[0], "the name is resolved")
		case t.tracker.get(p.wg).calling(t.now):
			t.move(p, known[0], "the name has moved")
		}
	}
}

func (t *turn) note(p *peer, problem string) {
	had := p.path.problem
	p.path.problem = problem
	p.show()
	switch {
	case had == "" && problem != "":
		t.log.Warn().Str("peer", p.key.Short()).Str("endpoint", p.path.declared.String()).Str("problem", problem).Msg("endpoint name does not resolve")
	case had != "" && problem == "":
		t.log.Info().Str("peer", p.key.Short()).Str("endpoint", p.path.declared.String()).Msg("endpoint name resolves again")
	}
}

// hurries tries second addresses whose turn has come.
func (t *turn) hurries() {
	for p, when := range t.model.hurry {
		if when.After(t.now) {
			t.next = earlier(t.next, when)
			continue
		}
		delete(t.model.hurry, p)
		if !t.tracker.get(p.wg).alive(t.now) {
			t.tryNext(p, "no handshake there yet")
		}
	}
}

// tryNext moves a peer whose session is dead to the next address that it may have. The pace
// slows, so that a peer that is gone costs little.
func (t *turn) tryNext(p *peer, why string) {
	candidates := t.candidates(p)
	if len(candidates) == 0 || t.now.Before(p.path.notTill) {
		return
	}
	current := t.liveOf(p)
	next := candidates[(slices.Index(candidates, current)+1)%len(candidates)]
	if next == current {
		return
	}
	p.path.tries++
	rounds := p.path.tries / len(candidates)
	if rounds > 0 {
		p.path.notTill = t.now.Add(min(rekeyTimeout<<min(rounds-1, 10), maxTry))
	}
	t.move(p, next, why)
}

// candidates are the addresses of the declaration, and the last live one.
func (t *turn) candidates(p *peer) []netip.AddrPort {
	out := slices.Clone(t.names.addresses(p.path.declared))
	live := p.path.lastLive
	if current := t.liveOf(p); current != p.path.applied {
		live = current
	}
	if live.IsValid() && !contains(out, live) {
		out = append(out, live)
	}
	return out
}

// liveOf is where packets to a peer go now. It is known without reading the device when
// nothing was heard since the last write.
func (t *turn) liveOf(p *peer) netip.AddrPort {
	if !p.path.heard {
		return p.path.applied
	}
	t.read()
	return t.live[p.key]
}

// read reads the device, once a turn at most.
func (t *turn) read() {
	if t.live != nil {
		return
	}
	t.live, t.stood, t.received = make(map[PublicKey]netip.AddrPort), make(map[PublicKey]time.Time), make(map[PublicKey]uint64)
	start := time.Now()
	s, err := t.observe()
	t.rest = restAfterRead * time.Since(start)
	if err != nil {
		return
	}
	for _, seen := range s.Peers {
		t.live[seen.PublicKey], t.stood[seen.PublicKey], t.received[seen.PublicKey] = seen.Endpoint, seen.LastHandshake, seen.ReceiveBytes
	}
}

// move sets an endpoint of a peer without a live session, and has it greeted there.
func (t *turn) move(p *peer, to netip.AddrPort, why string) {
	from := t.liveOf(p)
	if from != p.path.applied {
		p.path.lastLive = from
	}
	text := fmt.Appendf(nil, "public_key=%s\nupdate_only=true\n", p.key.Hex())
	if err := t.ipcSet(string(appendEndpoint(text, to))); err != nil {
		t.log.Error().Err(err).Str("peer", p.key.Short()).Msg("set endpoint, tried again at the next handshake")
		return
	}
	p.path.applied, p.path.heard = to, false
	p.show()
	if t.live != nil {
		t.live[p.key] = to
	}
	c := Change{Peer: p.key, Name: p.name, Field: "endpoint", New: to.String(), Cause: fmt.Sprintf("endpoint %s: %s", p.path.declared, why)}
	if from.IsValid() {
		c.Old = from.String()
	}
	t.changes = append(t.changes, c)
	if !t.tracker.get(p.wg).alive(t.now) {
		t.hurryOn(p)
		t.model.anew[p] = t.tracker.get(p.wg).sent.Add(settle)
	}
}

// initiations sends first handshakes to addresses that were just set. What is left of a
// handshake with the old address is given up, or wireguard-go would wait out its five seconds.
func (t *turn) initiations() {
	for p, when := range t.model.anew {
		if when.After(t.now) {
			t.next = earlier(t.next, when)
			continue
		}
		delete(t.model.anew, p)
		if !t.tracker.get(p.wg).alive(t.now) {
			t.after = append(t.after, func() { initiateAnew(p.wg) })
		}
	}
}

func initiateAnew(p *wg.Peer) {
	p.ExpireCurrentKeypairs()
	p.SendHandshakeInitiation(true)
}

// greet sends the first handshakes after the device came up, one every greetPace.
func (t *turn) greet() {
	if len(t.model.greet) == 0 {
		return
	}
	p := t.model.greet[0]
	t.model.greet = t.model.greet[1:]
	if t.model.peers[p.key] == p && !t.tracker.get(p.wg).alive(t.now) {
		t.after = append(t.after, func() { p.wg.SendHandshakeInitiation(false) })
	}
	if len(t.model.greet) > 0 {
		t.next = earlier(t.next, t.now.Add(greetPace))
	}
}

// announcements sends keepalives from a new port, announceBurst of them every greetPace.
func (t *turn) announcements() {
	if len(t.model.announce) == 0 {
		return
	}
	if !t.model.announceAt.After(t.now) {
		n := min(len(t.model.announce), announceBurst)
		for _, p := range t.model.announce[:n] {
			if t.model.peers[p.key] == p && t.tracker.get(p.wg).alive(t.now) {
				t.after = append(t.after, p.wg.SendKeepalive)
			}
		}
		t.model.announce = t.model.announce[n:]
		t.model.announceAt = t.now.Add(greetPace)
	}
	if len(t.model.announce) > 0 {
		t.next = earlier(t.next, t.model.announceAt)
	}
}
