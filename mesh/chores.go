package mesh

import (
	"context"
	"time"
)

const (
	// firstSave is how long after the start the facts are kept for a restart, and saveEvery how
	// often after that at most: writing all of them costs more the more there are.
	firstSave = 5 * time.Second
	saveEvery = time.Minute
	// publishEvery is how often the node's status is published at most.
	publishEvery = time.Second
)

// chores are what is done beside passes, each not too often.
func (a *Agent) chores() {
	a.due(resync) // a pass has just been made
	if a.o.ResyncPeriod > 0 {
		a.later(resync, a.o.ResyncPeriod)
	}
	if a.due(save) && a.o.Memory != nil && a.informed() {
		replace(a.toSave, a.store.Dump())
		a.savedAt = time.Now()
	}
	a.due(publish)
	if a.o.Publisher != nil && a.own.ListenPort != 0 && !a.own.equal(a.published) {
		a.publishStatus()
	}
}

// saveLater has the facts kept once it is time.
func (a *Agent) saveLater() {
	a.later(save, max(firstSave, saveEvery-time.Since(a.savedAt)))
}

// saveAtEnd keeps what was not kept yet.
func (a *Agent) saveAtEnd() {
	if _, scheduled := a.schedule[save]; scheduled && a.o.Memory != nil && a.informed() {
		a.save(a.store.Dump())
	}
}

// publishStatus makes the status known, not more often than publishEvery, and more seldom when
// that fails. What the source then shows of this node is compared again at the next pass.
func (a *Agent) publishStatus() {
	pause := publishEvery
	if n := a.unpublished.Load(); n > 0 {
		pause = retryAfter(int(n))
	}
	pause = max(pause, a.rival.pause(time.Now()))
	if wait := pause - time.Since(a.publishedAt); wait > 0 {
		a.later(publish, wait)
		return
	}
	a.publishedAt = time.Now()
	replace(a.toPublish, a.own)
}

// replace puts a value into a channel of size one in the place of what is there. One goroutine
// puts.
func replace[T any](c chan T, value T) {
	select {
	case <-c:
	default:
	}
	c <- value
}

// clerk writes what the loop hands over. Disks and API servers are slow, and the loop does not
// wait for them.
func (a *Agent) clerk(ctx context.Context) error {
	for {
		select {
		case status := <-a.toPublish:
			a.publish(ctx, status)
		case facts := <-a.toSave:
			a.save(facts)
		case <-ctx.Done():
			select {
			case facts := <-a.toSave:
				a.save(facts)
			default:
			}
			return nil
		}
	}
}

func (a *Agent) publish(ctx context.Context, status NodeStatus) {
	err := a.o.Publisher.Publish(ctx, a.o.Node, status)
	if err == nil {
		a.unpublished.Store(0)
		return
	}
	if ctx.Err() == nil {
		n := a.unpublished.Add(1)
		a.o.Log.Warn().Err(err).Stringer("retry_in", retryAfter(int(n))).Msg("this node's status could not be published")
		a.wake()
	}
}

func (a *Agent) save(facts []Update) {
	if err := a.o.Memory.Save(facts); err != nil {
		a.o.Log.Warn().Err(err).Msg("the facts could not be kept for a restart")
	}
}
