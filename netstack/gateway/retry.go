package gateway

import (
	"errors"
	"syscall"
	"time"
)

// retry says when what the system has refused is tried again: a port may become free, a folder
// may be made. The loop of the gateway owns it.
type retry struct {
	timer *time.Timer
	tries int // that were refused by the system, one after the other
}

const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

func newRetry() retry {
	t := time.NewTimer(lastRetry)
	t.Stop()
	return retry{timer: t}
}

// due is sent to when it is time for another try.
func (r *retry) due() <-chan time.Time { return r.timer.C }

// after follows a refusal. What is wrong by itself stays wrong until somebody mends it.
func (r *retry) after(err error) {
	if system := syscall.Errno(0); !errors.As(err, &system) && !errors.Is(err, errHangs) {
		r.end()
		return
	}
	r.timer.Reset(min(firstRetry<<min(r.tries, 10), lastRetry))
	r.tries++
}

// end is for a configuration that is accepted, or another one.
func (r *retry) end() {
	r.stop()
	r.tries = 0
}

// stop has the next try made by somebody else.
func (r *retry) stop() { r.timer.Stop() }
