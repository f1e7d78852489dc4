//go:build linux

package netns

import (
	"fmt"
	"slices"
	"time"
)

// Report is what became of the datagrams of a Flow.
type Report struct {
	Sent, Received, Doubled int
	Lost                    []Lost // by sequence number
	// Gap is the longest time between two arrivals, and GapAt when it began.
	Gap   time.Duration
	GapAt time.Time
}

// Lost is one datagram that did not arrive.
type Lost struct {
	Seq int
	At  time.Time // when it was sent
	Err error     // why it could not be sent; nil: it was
}

func (f *Flow) report() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := Report{Sent: len(f.packets), Received: f.got, Doubled: f.doubled}
	var arrivals []time.Time
	for seq, p := range f.packets {
		if p.received.IsZero() {
			r.Lost = append(r.Lost, Lost{seq, p.sent, p.err})
			continue
		}
		arrivals = append(arrivals, p.received)
	}
	slices.SortFunc(arrivals, time.Time.Compare)
	for i := 1; i < len(arrivals); i++ {
		if gap := arrivals[i].Sub(arrivals[i-1]); gap > r.Gap {
			r.Gap, r.GapAt = gap, arrivals[i-1]
		}
	}
	return r
}

// String is one line.
func (r Report) String() string {
	return fmt.Sprintf("sent %d, received %d, lost %d, doubled %d, longest gap %v", r.Sent, r.Received, len(r.Lost), r.Doubled, r.Gap.Round(time.Millisecond))
}

// Window is a time in which packets may be lost: something was done to the network.
type Window struct{ From, To time.Time }

// LostOutside returns what was lost that was sent in none of the windows.
func (r Report) LostOutside(windows ...Window) (lost []Lost) {
	for _, l := range r.Lost {
		explained := slices.ContainsFunc(windows, func(w Window) bool { return !l.At.Before(w.From) && !l.At.After(w.To) })
		if !explained {
			lost = append(lost, l)
		}
	}
	return lost
}

// FirstArrival returns when the first datagram arrived that was sent at the given time or
// later, and the zero time when none has.
func (f *Flow) FirstArrival(sentFrom time.Time) (first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.packets {
		late := p.received.IsZero() || !first.IsZero() && p.received.After(first)
		if !late && !p.sent.Before(sentFrom) {
			first = p.received
		}
	}
	return first
}
