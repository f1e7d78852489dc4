package proxy

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// complaintPause is the time between two lines about refusals of one reason.
const complaintPause = time.Minute

// complaints makes few lines at warn of many refusals: the first of a reason is told at once,
// and what follows once a minute, with the number and the last of them. Any goroutine may use
// it; the zero value works.
type complaints struct {
	mu sync.Mutex
	of map[Reason]*complaint
}

// complaint is what is yet to be told about one reason.
type complaint struct {
	grievance
	count int
	timer *time.Timer
}

// grievance is one flow or request that was not served.
type grievance struct {
	log            zerolog.Logger
	client, target string
	err            error // shown, but for one about a credential, which may hold what was typed
}

// add tells of a refusal, now or later. A client that left has nothing to complain of, and of
// MaxConns the server tells when it is reached and when that is over.
func (c *complaints) add(r Reason, of grievance) {
	if r == ReasonCanceled || r == ReasonShutdown || r == ReasonLimit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.of[r]; known != nil {
		known.grievance = of
		known.count++
		return
	}
	if c.of == nil {
		c.of = make(map[Reason]*complaint)
	}
	fresh := &complaint{grievance: of, count: 1}
	fresh.tell(r)
	fresh.timer = time.AfterFunc(complaintPause, func() { c.due(r) })
	c.of[r] = fresh
}

func (c *complaints) due(r Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.of[r]
	if known == nil {
		return
	}
	if known.count == 0 {
		delete(c.of, r)
		return
	}
	known.tell(r)
	known.timer.Reset(complaintPause)
}

// end tells what is left. Nothing may be added any more.
func (c *complaints) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, known := range c.of {
		known.timer.Stop()
		if known.count > 0 {
			known.tell(r)
		}
	}
	c.of = nil
}

func (c *complaint) tell(r Reason) {
	e := c.log.Warn().Str("reason", string(r)).Int("count", c.count).Str("client", c.client)
	if c.target != "" {
		e.Str("target", c.target)
	}
	if c.err != nil && r != ReasonAuth {
		e.AnErr("last", c.err)
	}
	e.Msg("flows are refused")
	c.count = 0
}
