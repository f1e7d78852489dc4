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

// doubt is a session that may not stand, because two initiations met.
type doubt struct {
	since time.Time
	count uint64    // of handshake messages until then; more since have settled it
	due   time.Time // for a look whether it stands
}

const (
	// A session that stands has shown it after one round trip.
	doubtTime = 500 * time.Millisecond
	// Looking reads the whole device, so all looks of this time are made at once.
	doubtStep = 250 * time.Millisecond
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
		t.model.doubts[p] = doubt{tr.last, tr.count, t.now.Add(order*doubtTime + doubtStep).Truncate(doubtStep)}
	}
	if n.crossed {
		delete(t.model.doubts, p)
		t.model.anew[p] = t.now.Add(2*order*settle - settle)
	}
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
		if stood, seen := t.stood[p.key]; seen && stood.Before(d.since) {
			t.after = append(t.after, func() { initiateAnew(p.wg) })
		}
	}
}
