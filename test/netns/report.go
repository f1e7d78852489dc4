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

// LostOutside returns what was lost that was not sent within the given time after one of the
// moments: what a change at that moment does not explain.
func (r Report) LostOutside(moments []time.Time, within time.Duration) (lost []Lost) {
	for _, l := range r.Lost {
		explained := slices.ContainsFunc(moments, func(m time.Time) bool {
			return !l.At.Before(m.Add(-time.Millisecond)) && l.At.Before(m.Add(within))
		})
		if !explained {
			lost = append(lost, l)
		}
	}
	return lost
}
