package mesh

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// accuse tells the others of nodes that carry a location and do not answer, and takes it back, both with a delay:
// who leads shall not change for a moment's loss, nor go back to one that comes and goes. It
// returns when to look again. The caller holds the lock.
func (p *prober) accuse(now time.Time) (next time.Time) {
	tested := make(map[string]bool)
	for _, t := range p.targets {
		if !t.Carries {
			continue
		}
		tested[t.Name] = true
		a, known := p.accused[t.Name]
		down := t.verdict == NoReply || t.verdict == HandshakeStale
		if down || known {
			p.accused[t.Name] = a.seen(down, now)
		}
	}
	next = now.Add(time.Minute)
	for name, a := range p.accused {
		if !tested[name] {
			a = a.unseen(now)
		}
		told := a.told
		a = a.decide(now)
		if a.told != told {
			p.wake()
		}
		p.accused[name] = a
		if !a.told && a.down.IsZero() {
			delete(p.accused, name)
		}
		if at := a.deadline(); !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

func (a accusation) seen(down bool, now time.Time) accusation {
	a.untested = false
	switch {
	case down && a.down.IsZero():
		a.down, a.up = now, time.Time{}
	case !down && a.up.IsZero():
		a.down, a.up = time.Time{}, now
	}
	return a
}

// unseen is of a leader that is not tested any more: it leads no longer. Should the one that does
// fail too, it is worth a try.
func (a accusation) unseen(now time.Time) accusation {
	if !a.untested {
		a.untested, a.down, a.up = true, time.Time{}, now
	}
	return a
}

func (a accusation) decide(now time.Time) accusation {
	if at := a.deadline(); !at.IsZero() && !now.Before(at) {
		a.told = !a.told
	}
	return a
}

// deadline is when the accusation is made or taken back; zero: neither is due.
func (a accusation) deadline() time.Time {
	switch {
	case !a.told && !a.down.IsZero():
		return a.down.Add(accuseAfter)
	case a.told && !a.up.IsZero():
		return a.up.Add(pardonAfter)
	}
	return time.Time{}
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see its documentation
	return binary.BigEndian.Uint64(b[:])
}
