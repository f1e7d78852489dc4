//go:build linux

package host

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stillwire/stillwire/mesh"
)

// A change that had to be made although the same goal had been reached is a repair. So many of one
// thing, each within memory of the one before, are a fight.
const (
	contended  = 3
	memory     = 90 * time.Second
	firstPause = time.Second
	longest    = 30 * time.Second
)

// fight remembers repairs. Apply and Run ask it, each from its goroutine.
type fight struct {
	mu      sync.Mutex
	link    string
	goal    wanted
	reached bool
	things  map[thing]repairs
}

// thing is what was repaired: one of the machine's, or the sets of the firewall as a whole.
type thing struct{ what, name string }

type repairs struct {
	n    int
	last time.Time
}

func newFight(link string) *fight { return &fight{link: link, things: make(map[thing]repairs)} }

// judge takes down what an Apply had to change, and names who keeps changing it back.
func (f *fight) judge(now time.Time, goal wanted, done []mesh.HostChange, ok bool) []mesh.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(now)
	if len(done) > 0 && f.reached && reflect.DeepEqual(goal, f.goal) {
		for t := range things(done) {
			f.things[t] = repairs{f.things[t].n + 1, now}
		}
	}
	f.goal, f.reached = goal, ok
	return f.problems()
}

func things(done []mesh.HostChange) map[thing]bool {
	out := make(map[thing]bool)
	for _, c := range done {
		out[thing{c.What, c.Name}] = true
	}
	return out
}

func (f *fight) forget(now time.Time) {
	for t, r := range f.things {
		if now.Sub(r.last) >= memory {
			delete(f.things, t)
		}
	}
}

func (f *fight) problems() (out []mesh.Problem) {
	names := make(map[string][]string)
	for t, r := range f.things {
		if r.n >= contended {
			names[t.what] = append(names[t.what], t.name)
		}
	}
	for what, of := range names {
		slices.Sort(of)
		p := mesh.Problem{
			Subject: mesh.Subject{Kind: mesh.KindHost, Name: f.link}, Field: what, Reason: mesh.Contended,
			Detail: fmt.Sprintf("another program keeps removing %s %s; it is put back, at most every %v", what, strings.Join(of[:min(len(of), 5)], ", "), longest),
			Remedy: "find it with ip monitor or nft monitor, and have it leave alone what is not its own",
		}
		if len(of) == 1 {
			p.Value = of[0]
		}
		out = append(out, p)
	}
	return out
}

// pause is how long to wait before the next repair.
func (f *fight) pause(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(now)
	var until time.Time
	for _, r := range f.things {
		if next := r.last.Add(pauseAfter(r.n)); next.After(until) {
			until = next
		}
	}
	return max(0, until.Sub(now))
}

// pauseAfter doubles from the first repair that makes it a fight.
func pauseAfter(n int) time.Duration {
	if n < contended {
		return 0
	}
	return min(firstPause<<min(n-contended, 10), longest)
}

// begun reports whether a fight is remembered, over or not.
func (f *fight) begun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.things) > 0
}
