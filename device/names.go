package device

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	lookupTimeout  = 10 * time.Second // of one lookup
	lookupsAtOnce  = 16               // so that a thousand names do not flood a resolver
	unknownTTL     = time.Minute      // when a resolver tells no time to live
	minTTL, maxTTL = 5 * time.Second, time.Hour
	refreshAfter   = 5 * time.Second // a silent peer's name is not asked more often
	maxRetry       = time.Minute     // between lookups of a name that does not resolve
)

// names keeps the answers for endpoint names. Lookups run in goroutines of their own; all
// else happens in the supervisor, under Device.lock. A name that stops resolving keeps its
// last good answer.
type names struct {
	resolver Resolver
	wake     func()
	slots    chan struct{}
	running  sync.WaitGroup
	hosts    map[string]*host // guarded by Device.lock

	mu      sync.Mutex
	results []lookup
}

// host is one name that endpoints use.
type host struct {
	name  string
	users int
	good  []netip.Addr // last usable answer
	asked time.Time    // start of the last lookup
	due   time.Time    // of the next one
	busy  bool
	fails int
	err   error // of the last lookup
}

// lookup is what one lookup brought.
type lookup struct {
	name  string
	addrs []netip.Addr
	ttl   time.Duration
	err   error
}

func newNames(r Resolver, wake func()) *names {
	return &names{resolver: r, wake: wake, slots: make(chan struct{}, lookupsAtOnce), hosts: make(map[string]*host)}
}

// use counts a user of an endpoint's name; the supervisor's next turn asks for a new one.
func (n *names) use(e Endpoint) {
	if !isName(e) {
		return
	}
	h := n.hosts[e.Host]
	if h == nil {
		h = &host{name: e.Host}
		n.hosts[e.Host] = h
	}
	h.users++
}

func (n *names) release(e Endpoint) {
	if h := n.hosts[e.Host]; h != nil && isName(e) {
		if h.users--; h.users == 0 {
			delete(n.hosts, e.Host)
		}
	}
}

func isName(e Endpoint) bool {
	_, literal := e.AddrPort()
	return !e.IsZero() && !literal
}

// addresses returns where an endpoint is, as far as is known now. It never waits.
func (n *names) addresses(e Endpoint) []netip.AddrPort {
	if a, literal := e.AddrPort(); literal {
		return []netip.AddrPort{a}
	}
	h := n.hosts[e.Host]
	if h == nil {
		return nil
	}
	out := make([]netip.AddrPort, len(h.good))
	for i, addr := range h.good {
		out[i] = netip.AddrPortFrom(addr, e.Port)
	}
	return out
}

// refresh makes a name due: its peer is silent.
func (n *names) refresh(e Endpoint, now time.Time) {
	if h := n.hosts[e.Host]; h != nil && now.Sub(h.asked) >= refreshAfter {
		h.due = now
	}
}

// ask starts a lookup of every name that is due and returns when the next one will be; zero
// when no name is waiting.
func (n *names) ask(ctx context.Context, now time.Time) (next time.Time) {
	for _, h := range n.hosts {
		if h.busy {
			continue
		}
		if h.due.After(now) {
			next = earlier(next, h.due)
			continue
		}
		h.busy, h.asked = true, now
		n.running.Go(func() { n.lookup(ctx, h.name) })
	}
	return next
}

func (n *names) lookup(ctx context.Context, name string) {
	select {
	case n.slots <- struct{}{}:
		defer func() { <-n.slots }()
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	answer, err := n.resolver.Resolve(ctx, name)
	r := lookup{name: name, ttl: answer.TTL, err: err}
	if err == nil {
		r.addrs, r.err = usable(answer, name)
	}
	n.mu.Lock()
	n.results = append(n.results, r)
	n.mu.Unlock()
	n.wake()
}

// collect takes in what lookups brought and returns the names that were answered, well or not.
func (n *names) collect(now time.Time) map[string]*host {
	n.mu.Lock()
	results := n.results
	n.results = nil
	n.mu.Unlock()
	answered := make(map[string]*host)
	for _, r := range results {
		h := n.hosts[r.name]
		if h == nil || !h.busy {
			continue // released meanwhile
		}
		h.take(r, now)
		answered[r.name] = h
	}
	return answered
}

func (h *host) take(r lookup, now time.Time) {
	h.busy, h.err = false, r.err
	if r.err != nil {
		h.due = now.Add(min(time.Second<<min(h.fails, 10), maxRetry))
		h.fails++
		return
	}
	h.good, h.fails = r.addrs, 0
	if r.ttl == 0 {
		r.ttl = unknownTTL
	}
	h.due = now.Add(min(max(r.ttl, minTTL), maxTTL))
}

// problem says in one line what is wrong with a name, "" when nothing is.
func (h *host) problem() string {
	switch {
	case h.err == nil:
		return ""
	case len(h.good) > 0:
		return fmt.Sprintf("name %s does not resolve, its last good addresses %v are kept: %v", h.name, h.good, h.err)
	}
	return fmt.Sprintf("name %s does not resolve, asked again in %v: %v", h.name, time.Until(h.due).Round(time.Second), h.err)
}

// wait returns when all lookups have ended; their context has.
func (n *names) wait() { n.running.Wait() }

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func contains(list []netip.AddrPort, a netip.AddrPort) bool { return slices.Contains(list, a) }
