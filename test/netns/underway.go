//go:build linux

package netns

import "time"

// UnderWaySince returns when the last datagram was sent that had arrived by the given time,
// and when the flow began if none had: what was sent later, up to that time, was under way.
func (f *Flow) UnderWaySince(at time.Time) (sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.packets {
		if sent.IsZero() || !p.received.IsZero() && !p.received.After(at) {
			sent = p.sent
		}
	}
	return sent
}
