package gateway

import (
	"slices"
	"sync"
	"time"
)

// outcome remembers what became of the configuration. Any goroutine may use it.
type outcome struct {
	mu     sync.Mutex
	config ConfigStatus
}

// obeyed notes a Load that took effect, and reports whether it ends a rejection.
func (o *outcome) obeyed(files []string, at time.Time) (again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	again = o.config.Rejected != nil
	o.config = ConfigStatus{Files: files, Applied: at}
	return again
}

// rejected notes a Load that did not, and reports whether that is for other reasons than before.
// Since stays while one rejection follows another.
func (o *outcome) rejected(err error, at time.Time) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := reasons(err)
	news = true
	if was := o.config.Rejected; was != nil {
		at, news = was.Since, !slices.Equal(was.Reasons, all)
	}
	o.config.Rejected = &Rejection{Since: at, Reasons: all}
	return news
}

func (o *outcome) status() ConfigStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.config
}
