package mesh

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
)

// explain writes what was done, and what could not be. Of a device each change has a line; of the
// machine, what one member or setting has brought to one kind of thing.
func (a *Agent) explain(done Done, err error) {
	for _, c := range done.Device {
		a.logDevice(c)
	}
	for _, l := range hostLines(done.Host) {
		a.logHost(l)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		a.o.Log.Error().Err(err).Stringer("retry_in", retryAfter(a.failures)).Msg("not all of the plan could be carried out")
	}
}

// announce says who leads, when that is another than before.
func (a *Agent) announce(plan Plan) {
	before := make(map[string]string, len(a.leaders))
	for _, l := range a.leaders {
		before[l.Location] = l.Leader
	}
	for _, l := range plan.Leaders {
		if old := before[l.Location]; old != l.Leader {
			a.o.Log.Info().Str("location", l.Location).Str("old", old).Str("new", l.Leader).Msg("leader changed")
		}
	}
	if plan.Self != "" {
		a.leaders = plan.Leaders
	}
}

// hostLine is the changes of one kind that have one cause.
type hostLine struct {
	what, cause             string
	added, changed, removed []string
}

// hostLines are in the order in which the first change of each was made.
func hostLines(changes []HostChange) (lines []*hostLine) {
	type id struct{ what, cause string }
	byID := make(map[id]*hostLine)
	for _, c := range changes {
		l := byID[id{c.What, c.Cause}]
		if l == nil {
			l = &hostLine{what: c.What, cause: c.Cause}
			byID[id{c.What, c.Cause}] = l
			lines = append(lines, l)
		}
		switch {
		case c.Old == "":
			l.added = append(l.added, c.Name+" "+c.New)
		case c.New == "":
			l.removed = append(l.removed, c.Name+" "+c.Old)
		default:
			l.changed = append(l.changed, c.Name+" "+c.Old+" -> "+c.New)
		}
	}
	return lines
}

// mostNamed is how many things a line names.
const mostNamed = 20

func (a *Agent) logHost(l *hostLine) {
	e := a.o.Log.Info().Str("what", l.what)
	for _, list := range []struct {
		key   string
		names []string
	}{{"added", l.added}, {"changed", l.changed}, {"removed", l.removed}} {
		if n := len(list.names); n > mostNamed {
			list.names = append(list.names[:mostNamed:mostNamed], fmt.Sprintf("and %d more", n-mostNamed))
		}
		if len(list.names) > 0 {
			e.Strs(list.key, list.names)
		}
	}
	if l.cause != "" {
		e.Str("cause", l.cause)
	}
	e.Msg("host changed")
}

// reportProblems writes a line when a problem begins, and one when it ends.
func (a *Agent) reportProblems(problems []Problem) {
	now := make(map[ID]Problem, len(problems))
	for _, p := range problems {
		now[p.ID()] = p
		if _, known := a.begun[p.ID()]; !known {
			logProblem(a.o.Log.Warn(), p).Str("remedy", p.Remedy).Msg("problem: " + p.Detail)
		}
	}
	for id, p := range a.begun {
		if _, lasts := now[id]; !lasts {
			logProblem(a.o.Log.Info(), p).Msg("problem ended")
		}
	}
	a.begun = now
}

func logProblem(e *zerolog.Event, p Problem) *zerolog.Event {
	e = e.Stringer("subject", p.Subject).Str("reason", string(p.Reason))
	if p.Field != "" {
		e = e.Str("field", p.Field)
	}
	if p.Value != "" {
		e = e.Str("value", p.Value)
	}
	return e
}

func (a *Agent) logDevice(c device.Change) {
	e := a.o.Log.Info().Str("field", c.Field)
	if !c.Peer.IsZero() {
		e = e.Str("peer", c.Peer.Short())
	}
	if c.Name != "" {
		e = e.Str("name", c.Name)
	}
	e = e.Str("old", c.Old).Str("new", c.New)
	if c.Cause != "" {
		e = e.Str("cause", c.Cause)
	}
	e.Msg("device changed")
}
