package kube

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// reach is whether requests get to the API server at all. client-go tries one that does not ten times
// before it tells; this knows at the first.
type reach struct {
	http.RoundTripper

	mu     sync.Mutex
	failed error     // of the last request; nil: it was answered, whatever the answer
	since  time.Time // when that began
	tell   func()    // it began or ended; nil: nobody asks
}

func (r *reach) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(q)
	if err == nil || q.Context().Err() == nil {
		r.note(err)
	}
	return answer, err
}

func (r *reach) note(err error) {
	r.mu.Lock()
	changed := (err == nil) != (r.failed == nil)
	if changed {
		r.since = time.Now()
	}
	r.failed = err
	tell := r.tell
	r.mu.Unlock()
	if changed && tell != nil {
		tell()
	}
}

// onChange sets who is told. It must not block.
func (r *reach) onChange(tell func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = tell
}

// down is as that of a kind.
func (r *reach) down(lasts time.Duration) (why string, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		return "", 0
	}
	if left := lasts - time.Since(r.since); left > 0 {
		return "", left
	}
	return fmt.Sprintf("the API server cannot be reached: %v", r.failed), 0
}
