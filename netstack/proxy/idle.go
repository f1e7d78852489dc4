package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// idleTimer calls fire once when nothing has touched it for limit. Touching costs one clock
// reading; the timer itself is set again only when it fires early. A nil idleTimer never
// fires.
type idleTimer struct {
	limit time.Duration
	fire  func()
	start time.Time
	last  atomic.Int64 // nanoseconds after start

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// startIdle starts the timer; a limit of zero or less is none. stop must be called.
func startIdle(limit time.Duration, fire func()) *idleTimer {
	if limit <= 0 {
		return nil
	}
	t := &idleTimer{limit: limit, fire: fire, start: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(limit, t.look)
	return t
}

func (t *idleTimer) touch() {
	if t != nil {
		t.last.Store(int64(time.Since(t.start)))
	}
}

func (t *idleTimer) look() {
	if t.rearm() {
		return
	}
	t.fire()
}

// rearm reports whether it is too early to fire, or too late.
func (t *idleTimer) rearm() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return true
	}
	left := t.limit - (time.Since(t.start) - time.Duration(t.last.Load()))
	if left > 0 {
		t.timer.Reset(left)
		return true
	}
	t.over = true
	return false
}

// stop ends the timer. When fire is running, stop does not wait for it.
func (t *idleTimer) stop() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.timer.Stop()
}
