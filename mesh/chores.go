package mesh

import (
	"context"
	"time"
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
