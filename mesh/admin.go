package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Report is a Status as /status shows it, in JSON.
type Report struct {
	Node          string           `json:"node"`
	Mode          Mode             `json:"mode"`
	Because       string           `json:"because,omitempty"` // why it is this mode
	Location      string           `json:"location"`
	Synced        bool             `json:"synced"`
	Leads         bool             `json:"leads"`
	MeshAddresses []netip.Addr     `json:"meshAddresses"`
	Members       []ReportMember   `json:"members"`
	Problems      []ReportProblem  `json:"problems"`
	Leaders       []ReportLocation `json:"leaders,omitempty"`
}

// ReportMember is one member that the node tests.
type ReportMember struct {
	Name      string     `json:"name"`
	Key       string     `json:"publicKey"`
	Verdict   Verdict    `json:"verdict"`
	RoundTrip float64    `json:"roundTripSeconds"` // 0: no answer yet
	Loss      float64    `json:"loss"`             // from 0 to 1
	Since     *time.Time `json:"since,omitempty"`
}

// ReportProblem is one Problem.
type ReportProblem struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name,omitempty"`
	Source string `json:"source,omitempty"`
	Field  string `json:"field,omitempty"`
	Value  string `json:"value,omitempty"`
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// ReportLocation is who leads a location.
type ReportLocation struct {
	Location string `json:"location"`
	Leader   string `json:"leader"`
}

// Report is the status in the words of /status.
func (s *Status) Report() Report {
	r := Report{
		Node: s.Node, Mode: s.Mode, Because: s.Because, Location: s.Plan.Location, Synced: s.Synced,
		Leads: s.Plan.Publish.Leads != 0, MeshAddresses: append([]netip.Addr{}, s.Plan.Publish.MeshAddresses...),
		Members: []ReportMember{}, Problems: reportProblems(s.Problems),
	}
	for _, m := range s.Members {
		member := ReportMember{Name: m.Name, Key: m.Key.String(), Verdict: m.Verdict, RoundTrip: m.RoundTrip.Seconds(), Loss: m.Loss}
		if !m.Since.IsZero() {
			member.Since = &m.Since
		}
		r.Members = append(r.Members, member)
	}
	for _, l := range s.Plan.Leaders {
		r.Leaders = append(r.Leaders, ReportLocation(l))
	}
	return r
}

// Handler serves /livez, /readyz, /status and /plan, all of them to read alone. It may be called
// from any goroutine, before Run too. Who may reach it is the caller's to decide: what it shows
// names every member of the mesh.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.serveReady)
	mux.HandleFunc("GET /status", a.serveStatus)
	mux.HandleFunc("GET /plan", a.servePlan)
	return mux
}

func (a *Agent) serveReady(w http.ResponseWriter, _ *http.Request) {
	if a.Status().Plan.Self == "" {
		http.Error(w, "no plan yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (a *Agent) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(a.Status().Report()) // the other end has gone
}

func (a *Agent) servePlan(w http.ResponseWriter, r *http.Request) {
	ahead, err := a.Ahead(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, ahead)
}

// Ahead is what the next pass of an agent would do.
type Ahead struct {
	Plan     Plan
	Problems []Problem
	Changes  []string // a line each
}

// String is the plan, then the problems, then the changes.
func (a Ahead) String() string {
	var b strings.Builder
	b.WriteString(a.Plan.String())
	if len(a.Problems) > 0 {
		b.WriteString("\n")
	}
	for _, p := range a.Problems {
		fmt.Fprintf(&b, "problem %s: %s\n", p.Reason, p)
	}
	b.WriteString("\n")
	for _, c := range a.Changes {
		fmt.Fprintf(&b, "would change %s\n", c)
	}
	if len(a.Changes) == 0 {
		b.WriteString("nothing would change\n")
	}
	return b.String()
}

// errNotRunning says that there is no loop to ask.
var errNotRunning = errors.New("the agent does not run")

// Ahead compares the plan of this moment with the device and the machine, and changes nothing.
// It may be called from any goroutine while Run runs.
func (a *Agent) Ahead(ctx context.Context) (Ahead, error) {
	answer := make(chan Ahead, 1)
	select {
	case a.asked <- answer:
	case <-a.ended:
		return Ahead{}, errNotRunning
	case <-ctx.Done():
		return Ahead{}, ctx.Err()
	}
	select {
	case ahead := <-answer:
		return ahead, nil
	case <-a.ended:
		return Ahead{}, errNotRunning
	case <-ctx.Done():
		return Ahead{}, ctx.Err()
	}
}

// look ahead answers one question of Ahead.
func (a *Agent) lookAhead() (ahead Ahead) {
	facts, err := a.o.Host.Facts()
	if err != nil {
		ahead.Changes = append(ahead.Changes, "unknown: this machine's addresses cannot be read: "+err.Error())
	}
	snapshot, problems := a.store.Snapshot()
	problems = append(problems, snapshot.Settings.overruled(a.o.Settings, a.o.Node)...)
	ahead.Plan, ahead.Problems = MakePlan(a.world(snapshot, facts, false), a.o.Node, a.o.Plan)
	ahead.Problems = append(problems, ahead.Problems...)
	if ahead.Plan.Self == "" {
		return ahead
	}
	want := ahead.Plan.Device
	want.PrivateKey, want.FwMark = a.o.Key, a.o.FwMark
	device, err := a.o.Device.Plan(want)
	for _, c := range device {
		ahead.Changes = append(ahead.Changes, c.String())
	}
	if err != nil {
		ahead.Changes = append(ahead.Changes, "unknown: "+err.Error())
	}
	host, err := a.o.Host.Plan(ahead.Plan.Host)
	for _, c := range host {
		ahead.Changes = append(ahead.Changes, c.String())
	}
	if err != nil {
		ahead.Changes = append(ahead.Changes, "unknown: "+err.Error())
	}
	return ahead
}

// String is one line: what, old, new, cause.
func (c HostChange) String() string {
	text := c.What + " " + c.Name + ":"
	switch {
	case c.Old == "":
		text += " +" + c.New
	case c.New == "":
		text += " -" + c.Old
	default:
		text += " " + c.Old + " -> " + c.New
	}
	if c.Cause != "" {
		text += " (" + c.Cause + ")"
	}
	return text
}
