package netstack

import (
	"sync"
	"time"
)

// deadline is a moment at which waits end. It can be moved while they wait, in which case
// they follow it: expired's channel is only ever closed when the current deadline is over,
// and a new one takes its place afterwards.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{}
}

func (d *deadline) init() { d.over = make(chan struct{}) }

// expired is closed when the deadline is over.
func (d *deadline) expired() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// set moves the deadline to t; the zero time is never, a past one is now.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.over // its function is on the way: let it close this channel, not the next
	}
	d.timer = nil
	isOver := false
	select {
	case <-d.over:
		isOver = true
	default:
	}
	left := time.Until(t)
	switch {
	case t.IsZero() || left > 0:
		if isOver {
			d.over = make(chan struct{})
		}
		if !t.IsZero() {
			over := d.over
			d.timer = time.AfterFunc(left, func() { close(over) })
		}
	case !isOver:
		close(d.over)
	}
}
