package mesh

import (
	"time"

	"github.com/stillwire/stillwire/device"
)

// Status is what an agent knows at one moment. It is not changed once published.
type Status struct {
	Node     string
	Mode     Mode
	Because  string // why it is this mode
	Synced   bool   // every source has said all it knows
	Plan     Plan
	Problems []Problem
	Members  []MemberStatus // those that this node tests, by name
	Peers    []PeerStatus   // outside peers that this node has a tunnel with, by name
}

// MemberStatus is what is known of the way to one member.
type MemberStatus struct {
	Name      string
	Key       device.PublicKey
	Verdict   Verdict
	RoundTrip time.Duration // of the last answer; 0: none came
	Loss      float64       // of the last probes, from 0 to 1
	Since     time.Time     // when the verdict came to be; zero: not tested yet
}

func (a *Agent) makeStatus(plan Plan, problems []Problem) *Status {
	s := &Status{Node: a.o.Node, Mode: a.o.Mode, Because: a.o.Because, Synced: a.store.Synced(), Plan: plan, Problems: problems}
	if a.prober != nil {
		s.Members, s.Peers = a.prober.members(), a.prober.peers()
	}
	return s
}

// tell makes a status the one that is known.
func (a *Agent) tell(s *Status) {
	a.status.Store(s)
	if a.o.Report != nil {
		a.o.Report(s)
	}
}
