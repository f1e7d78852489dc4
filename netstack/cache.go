package netstack

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxCacheTime bounds what a record's time to live may ask for.
	maxCacheTime = time.Hour
	// maxCached bounds how many answers are kept.
	maxCached = 1024
)

// dnsCache keeps good answers until their time is up. The zero value is ready.
type dnsCache struct {
	mu      sync.Mutex
	answers map[cacheKey]cachedAnswer
}

type cacheKey struct {
	name string // lower case
	typ  uint16
}

type cachedAnswer struct {
	addrs []netip.Addr
	until time.Time
}

func (c *dnsCache) get(name string, typ uint16) ([]netip.Addr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.answers[cacheKey{strings.ToLower(name), typ}]
	if !ok || !time.Now().Before(a.until) {
		return nil, false
	}
	return slices.Clone(a.addrs), true
}

func (c *dnsCache) put(name string, typ uint16, addrs []netip.Addr, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = make(map[cacheKey]cachedAnswer)
	}
	if len(c.answers) >= maxCached {
		c.makeRoom()
	}
	c.answers[cacheKey{strings.ToLower(name), typ}] = cachedAnswer{slices.Clone(addrs), time.Now().Add(ttl)}
}

// makeRoom forgets what is over, or else any one answer.
func (c *dnsCache) makeRoom() {
	now := time.Now()
	for key, a := range c.answers {
		if !now.Before(a.until) {
			delete(c.answers, key)
		}
	}
	for key := range c.answers {
		if len(c.answers) < maxCached {
			return
		}
		delete(c.answers, key)
	}
}

func (c *dnsCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.answers)
}
