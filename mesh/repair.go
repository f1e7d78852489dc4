package mesh

import (
	"net/netip"
	"slices"
	"time"
)

// repair asks the far side for a new session: one that was started anew answers nothing else.
// When that does not help, the endpoint is held for one that fails, and the planner chooses
// another; when all have failed, it begins with the first again. The caller holds the lock.
func (p *prober) repair(t *target, now time.Time) {
	t.doubted = t.missed >= lostToMove && !t.endpoint.IsZero()
	p.renew(t, now)
}

// doubtful reports whether an endpoint is about to be given up.
func (p *prober) doubtful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		if t.doubted {
			return true
		}
	}
	return false
}

// settle gives up the endpoints that are doubted, once the device was looked at: a session that
// has come up since the last probe must not lose its way.
func (p *prober) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, t := range p.targets {
		switch {
		case !t.doubted:
		case t.peer.LastHandshake.After(t.probed):
			t.due, t.asked = now, time.Time{}
		default:
			p.move(t, now)
		}
		t.doubted = false
	}
}

// renew asks for a new session. The caller holds the lock.
func (p *prober) renew(t *target, now time.Time) {
	r, ok := p.device.(interface{ Renew(netip.Addr) error })
	if !ok || now.Sub(t.renewed) < renewAfter {
		return
	}
	t.renewed = now
	if err := r.Renew(t.Address); err != nil {
		p.log.Debug().Err(err).Str("name", t.Name).Msg("no new session")
	}
}

// move has the planner choose another endpoint. The caller holds the lock.
func (p *prober) move(t *target, now time.Time) {
	switch {
	case !slices.Contains(t.failed, t.endpoint):
		t.failed, t.failedAt = append(t.failed, t.endpoint), now
	case now.Sub(t.failedAt) >= moveAgain:
		t.failed, t.failedAt = nil, now
	default:
		return
	}
	p.wake()
}
