package mesh

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
)

// chores are what is done beside passes, each not too often.
func (a *Agent) chores(ctx context.Context) {
	a.due(resync) // a pass has just been made
	if a.o.ResyncPeriod > 0 {
		a.later(resync, a.o.ResyncPeriod)
	}
	if a.due(save) {
		a.saveFacts()
	}
	a.due(publish)
	if a.o.Publisher != nil && a.own.ListenPort != 0 && !a.own.equal(a.published) {
		a.publishStatus(ctx)
	}
}

func (a *Agent) saveFacts() {
	if a.o.Memory == nil || !a.informed() {
		return
	}
	if err := a.o.Memory.Save(a.store.Dump()); err != nil {
		a.o.Log.Warn().Err(err).Msg("the facts could not be kept for a restart")
		a.later(save, time.Minute)
	}
}

// publishStatus makes the status known, not more often than publishEvery. What the source then
// shows of this node is compared again at the next pass.
func (a *Agent) publishStatus(ctx context.Context) {
	if wait := publishEvery - time.Since(a.publishedAt); wait > 0 {
		a.later(publish, wait)
		return
	}
	a.publishedAt = time.Now()
	if err := a.o.Publisher.Publish(ctx, a.o.Node, a.own); err != nil && ctx.Err() == nil {
		a.o.Log.Warn().Err(err).Stringer("retry_in", retryAfter(a.failures)).Msg("this node's status could not be published")
		a.later(publish, retryAfter(a.failures))
	}
}

// reportProblems writes a line when a problem begins, and one when it ends.
func (a *Agent) reportProblems(problems []Problem) {
	now := make(map[ID]Problem, len(problems))
	for _, p := range problems {
		now[p.ID()] = p
		if _, known := a.begun[p.ID()]; !known {
			logProblem(a.o.Log.Warn(), p).Str("remedy", p.Remedy).Msg("problem: " + p.Detail)
		}
	}
	for id, p := range a.begun {
		if _, lasts := now[id]; !lasts {
			logProblem(a.o.Log.Info(), p).Msg("problem ended")
		}
	}
	a.begun = now
}

func logProblem(e *zerolog.Event, p Problem) *zerolog.Event {
	e = e.Stringer("subject", p.Subject).Str("reason", string(p.Reason))
	if p.Field != "" {
		e = e.Str("field", p.Field)
	}
	if p.Value != "" {
		e = e.Str("value", p.Value)
	}
	return e
}

func (a *Agent) logDevice(c device.Change) {
	e := a.o.Log.Info().Str("field", c.Field)
	if !c.Peer.IsZero() {
		e = e.Str("peer", c.Peer.Short())
	}
	if c.Name != "" {
		e = e.Str("name", c.Name)
	}
	e = e.Str("old", c.Old).Str("new", c.New)
	if c.Cause != "" {
		e = e.Str("cause", c.Cause)
	}
	e.Msg("device changed")
}
