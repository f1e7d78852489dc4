package device

import "time"

// When both sides speak first at once, each side's initiation arrives while the other's is
// under way:
//
//	near ── initiation ──╲ ╱── initiation ── far
//	                      ╳
//	near ◄───────────────╱ ╲───────────────► far    each gives up its own for the other's
//	near ── response ────► ◄──── response ── far    to what was given up: nobody takes it
//
// So there are two sessions, and nobody may speak first in either. On their own, both sides
// would try again after 5 s. The supervisor does so sooner, one side after the other.

// doubt is a session that may not stand, because two initiations met or crossed.
type doubt struct {
	since time.Time
	count uint64    // of handshake messages until then; more since have settled it
	due   time.Time // for a look whether it stands

	// Where a session was renewed, it stands when something is received between two looks.
	renewal  bool
	looked   bool
	received uint64 // bytes, at the first look
}

// crossings are handshakes with a peer that crossed of late.
type crossings struct {
	count int
	last  time.Time
}

const (
	// A session that stands has shown it after one round trip.
	doubtTime = 500 * time.Millisecond
	// Looking reads the whole device, so all looks of this time are made at once.
	doubtStep = 250 * time.Millisecond

	crossingsTime = time.Minute // without another crossing, and they are forgotten
	maxDoublings  = 4           // of settle: to 1.6 s, on the other side to 4.8 s
)

// mistrust notes sessions that do not stand, or may not. Should it be so on both sides, the
// one with the larger key gives the other time to go first.
func (t *turn) mistrust(p *peer, n news) {
	order := time.Duration(1)
	if t.model.publicKey.Compare(p.key) > 0 {
		order = 2
	}
	if n.met {
		tr := t.tracker.get(p.wg)
		t.model.doubts[p] = doubt{since: tr.last, count: tr.count, due: t.now.Add(order*doubtTime + doubtStep).Truncate(doubtStep)}
	}
	if !n.crossed {
		return
	}
	delete(t.model.doubts, p)
	wait := (2*order*settle - settle) << p.crossings.another(t.now)
	if n.renewal {
		t.model.doubts[p] = doubt{count: t.tracker.get(p.wg).count, due: t.now.Add(wait), renewal: true}
		return
	}
	t.model.anew[p] = t.now.Add(wait)
}

// another counts a crossing and returns how often the wait for a new handshake doubles.
func (c *crossings) another(now time.Time) (doublings int) {
	if now.Sub(c.last) > crossingsTime {
		c.count = 0
	}
	doublings = min(c.count, maxDoublings)
	c.count, c.last = c.count+1, now
	return doublings
}

// doubts has handshakes made anew where no session stands: wireguard-go tells so by the time
// of the last handshake, which is when the first packet came in it.
func (t *turn) doubts() {
	for p, d := range t.model.doubts {
		if d.due.After(t.now) {
			t.next = earlier(t.next, d.due)
			continue
		}
		delete(t.model.doubts, p)
		if t.tracker.get(p.wg).count != d.count {
			continue
		}
		t.read()
		stood, seen := t.stood[p.key]
		switch received := t.received[p.key]; {
		case !seen:
		case d.renewal && !d.looked:
			d.looked, d.received, d.due = true, received, t.now.Add(2*settle)
			t.model.doubts[p] = d
			t.next = earlier(t.next, d.due)
		case d.renewal && received == d.received:
			t.tracker.giveUp(p.wg)
			t.after = append(t.after, func() { initiateAnew(p.wg) })
		case !d.renewal && stood.Before(d.since):
			t.after = append(t.after, func() { initiateAnew(p.wg) })
		}
	}
}
