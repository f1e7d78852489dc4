package device

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/rs/zerolog"
)

// What an operator is told of sessions, for a tunnel that never comes up is otherwise silent:
//
//	handshakes of ours ── unanswered for warnAfter ──► warn, once
//	handshakes of theirs ── answered, and no session for warnAfter ──► warn, once
//	a session, the first one or after a warning ──► info, once
//
// A peer without a declared endpoint comes and goes as it likes, so its silence is no trouble.

const (
	warnAfter   = 10 * time.Second // two handshakes without answer are a lost packet, three are not
	confirmTime = time.Second      // a session that stands has shown it by then; looks are gathered
	vigilLines  = 40               // told in vigilTime at most, for the sake of devices with many peers
	vigilTime   = time.Minute
)

// vigil is what was told, and what is yet to be looked at. It is guarded by Device.lock.
type vigil struct {
	confirm map[*peer]confirmation
	began   time.Time // of the time in which lines are counted
	lines   int
}

// confirmation is a look whether a session stands that the peer has begun.
type confirmation struct{ called, due time.Time }

// watch is what was told of one peer. It is guarded by Device.lock.
type watch struct {
	up      bool      // that there is a session, and no trouble since
	warned  bool      // that there is none
	since   time.Time // of handshakes of theirs that lead to no session; zero: none
	trouble string    // for State; "": none
	from    time.Time // when the endpoint was declared: what was before says nothing of it
}

// declare lets a peer that was warned of be warned of anew.
func (w *watch) declare(now time.Time) {
	if w.from = now; w.warned {
		w.warned, w.trouble = false, ""
	}
}

// watchOver follows what became of handshakes with the peer.
func (t *turn) watchOver(p *peer, n news) {
	tr := t.tracker.get(p.wg)
	if tr.since.Before(p.watch.from) {
		tr.since = p.watch.from
	}
	switch {
	case p.watch.up && !p.watch.warned && n.completed:
	case n.completed && !tr.stood.IsZero() && !tr.stood.Before(tr.last):
		t.sessionIsUp(p)
	case n.completed:
		if _, waits := t.model.vigil.confirm[p]; !waits {
			t.model.vigil.confirm[p] = confirmation{tr.last, t.now.Add(2 * confirmTime).Truncate(confirmTime)}
		}
	case tr.tries > 1 && t.now.Sub(tr.since) >= warnAfter:
		t.unheard(p, tr)
	}
}

// confirmations looks, all at once, whether sessions stand that peers have begun.
func (t *turn) confirmations() {
	for p, c := range t.model.vigil.confirm {
		if c.due.After(t.now) {
			t.next = earlier(t.next, c.due)
			continue
		}
		delete(t.model.vigil.confirm, p)
		if t.model.peers[p.key] != p {
			continue
		}
		t.read()
		if !t.stood[p.key].Before(c.called) {
			t.sessionIsUp(p)
			continue
		}
		if p.watch.since.IsZero() {
			p.watch.since = c.called
		}
		if c.called.Sub(p.watch.since) >= warnAfter {
			t.untaken(p)
		}
	}
}

func (t *turn) sessionIsUp(p *peer) {
	p.watch = watch{up: true, from: p.watch.from}
	e := t.line(zerolog.InfoLevel, p)
	to := p.path.applied // good enough where the device was not read: many come up at once
	if t.live != nil {
		to = t.live[p.key]
	}
	if to.IsValid() {
		e.Stringer("endpoint", to)
	}
	e.Msg("session with peer is up")
}

// unheard tells of handshakes of ours without answer.
func (t *turn) unheard(p *peer, tr track) {
	if p.watch.warned || p.path.declared.IsZero() {
		return
	}
	hint := "check that UDP reaches the endpoint, that each side has the other's PublicKey, and that both have the same PresharedKey"
	to := t.liveOf(p)
	switch {
	case p.path.problem != "":
		hint = p.path.problem
	case tr.err != nil:
		hint = tr.err.Error()
	case t.tracker.denies(to, tr.since):
		hint = "the answers that come are for another key: check that both sides have the same PresharedKey, and the PublicKey of the peer"
	}
	where := p.path.declared.String()
	if to.IsValid() {
		where = to.String()
	}
	p.watch.warned = true
	p.watch.trouble = fmt.Sprintf("no answer to handshakes at %s since %s: %s", where, tr.since.UTC().Format(time.RFC3339), hint)
	t.line(zerolog.WarnLevel, p).Str("endpoint", where).Int("tries", tr.tries).Str("hint", hint).Msg("peer does not answer handshakes, trying on")
}

// untaken tells of handshakes of theirs, the answers to which lead to no session.
func (t *turn) untaken(p *peer) {
	if p.watch.warned {
		return
	}
	hint := "check that both sides have the same PresharedKey, and that UDP passes to the peer"
	p.watch.warned = true
	p.watch.trouble = "the peer takes no answer to its handshakes since " + p.watch.since.UTC().Format(time.RFC3339) + ": " + hint
	t.line(zerolog.WarnLevel, p).Stringer("endpoint", t.liveOf(p)).Str("hint", hint).Msg("peer takes no answer to its handshakes")
}

// line begins a line about a peer, at debug when there were many of late.
func (t *turn) line(level zerolog.Level, p *peer) *zerolog.Event {
	if t.now.Sub(t.model.vigil.began) >= vigilTime {
		t.model.vigil.began, t.model.vigil.lines = t.now, 0
	}
	if t.model.vigil.lines++; t.model.vigil.lines > vigilLines {
		level = zerolog.DebugLevel
	}
	e := t.log.WithLevel(level).Str("peer", p.key.Short())
	if p.name != "" {
		e.Str("name", p.name)
	}
	return e
}

// strangers counts handshakes that wireguard-go has turned away. It is guarded by the mutex of
// the tracker, and bounded.
type strangers struct {
	initiations map[string]stranger // by where they came from; "": for another key than ours
	answers     map[string]time.Time
}

type stranger struct {
	first, last time.Time
	count       int       // since it was told
	told        time.Time // zero: never
}

const (
	maxStrangers  = 256
	strangerAfter = 4 * time.Second // who calls again so late is no echo of a crossed or lost message
	strangerPause = 5 * time.Minute // between two lines about one place
)

// turnedAway notes a message that wireguard-go did not take, by its words.
func (t *tracker) turnedAway(format string, args []any) {
	from := ""
	if len(args) > 0 {
		from, _ = args[0].(string)
	}
	switch format {
	case "Received invalid initiation message from %s":
		t.stranger(from)
	case "Received packet with invalid mac1":
		t.stranger("")
	case "Received invalid response message from %s":
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.strangers.answers) < maxStrangers {
			t.strangers.answers[from] = time.Now()
		}
	}
}

func (t *tracker) stranger(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	s, known := t.strangers.initiations[from]
	if !known && len(t.strangers.initiations) >= maxStrangers {
		return
	}
	if !known || now.Sub(s.last) > strangerPause {
		s.first = now
	}
	s.last = now
	s.count++
	t.strangers.initiations[from] = s
	if s.due() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// due reports whether the stranger has called long enough, and no line was written of late.
func (s stranger) due() bool {
	return s.count > 0 && s.last.Sub(s.first) >= strangerAfter && s.last.Sub(s.told) >= strangerPause
}

// denies reports whether an answer came from there since, that could not be read.
func (t *tracker) denies(from netip.AddrPort, since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.strangers.answers[from.String()].After(since)
}

// calledInVain returns what is to be told of strangers.
func (t *tracker) calledInVain(now time.Time) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out map[string]int
	for from, s := range t.strangers.initiations {
		switch {
		case s.due():
			if out == nil {
				out = make(map[string]int)
			}
			out[from] = s.count
			s.count, s.told = 0, now
			t.strangers.initiations[from] = s
		case now.Sub(s.last) > 2*strangerPause:
			delete(t.strangers.initiations, from)
		}
	}
	for from, at := range t.strangers.answers {
		if now.Sub(at) > strangerPause {
			delete(t.strangers.answers, from)
		}
	}
	return out
}

// refusals tells of handshakes that are turned away. A key that is not known has no name.
func (t *turn) refusals() {
	for from, n := range t.tracker.calledInVain(t.now) {
		hint := "no peer here has the key of that side, or its clock has gone back: check the PublicKey here"
		if from == "" {
			hint = "somebody has another PublicKey for this side than " + t.model.publicKey.String()
		}
		t.log.Warn().Str("endpoint", cmp.Or(from, "unknown")).Int("count", n).Str("hint", hint).Msg("handshakes are refused")
	}
}
