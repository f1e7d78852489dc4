package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Options of a Run. The zero value is the demo as it is meant.
type Options struct {
	Changes int           // live changes to make. 0: 10,000, naive 300: each takes long there
	Pace    time.Duration // between two steps. 0: 2 ms
	Beat    time.Duration // between bursts of traffic. 0: 20 ms, for 1500 datagrams a second in all
	Seed    uint64        // of chance. 0: a new one
	Naive   bool          // apply the whole configuration at each change
	Out     io.Writer     // progress and result
	Live    bool          // Out is a terminal: progress may overwrite itself
}

// Result is what a Run found.
type Result struct {
	Changes    int   // made while traffic flowed
	Packets    int64 // UDP datagrams sent
	Lost       int64 // of them never seen again, or seen twice
	Resets     int64 // TCP connections that broke or carried wrong bytes
	Handshakes int64 // more than sessions and their age explain
}

// Clean reports whether the traffic noticed nothing.
func (r Result) Clean() bool { return r.Lost == 0 && r.Resets == 0 && r.Handshakes <= 0 }

// String is the last line of the demo.
func (r Result) String() string {
	return fmt.Sprintf("demo: changes=%d packets=%d lost=%d resets=%d handshakes_extra=%d",
		r.Changes, r.Packets, r.Lost, r.Resets, r.Handshakes)
}

// sessionAge is how old a session gets before its initiator renews it (WireGuard's
// REKEY_AFTER_TIME).
const sessionAge = 120 * time.Second

// settling is how long traffic flows before the first change: a control, and time for the
// first sessions to be done with. wireguard-go may start a retry timer after the answer has
// come, and then shakes hands once more after five seconds.
const settling = 6 * time.Second

// Run runs the demo. An error means that it could not be run, or that a configuration was
// wrongly taken or refused; what became of the traffic is in the Result.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Changes == 0 && o.Naive {
		o.Changes = 300
	}
	if o.Changes == 0 {
		o.Changes = 10_000
	}
	if o.Pace == 0 {
		o.Pace = 2 * time.Millisecond
	}
	if o.Beat == 0 {
		o.Beat = 20 * time.Millisecond
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	w, err := newWorld(ctx, o.Naive)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	intro(o)
	f, err := startFlows(ctx, w.nodes, o.Beat)
	if err != nil {
		f.close()
		return Result{}, err
	}
	c := &changer{world: w, rand: rand.New(rand.NewPCG(o.Seed, 0)), whole: o.Naive, kinds: make(map[string]int)}
	return measure(ctx, o, f, c)
}

// measure makes the changes while the traffic flows, and counts.
func measure(ctx context.Context, o Options, f *flows, c *changer) (Result, error) {
	begun := time.Now()
	settled := time.NewTimer(settling)
	defer settled.Stop()
	select {
	case <-settled.C:
	case <-ctx.Done():
	}
	progress(o, f, c, time.Since(begun))
	before, err := c.handshakes()
	if err != nil {
		f.close()
		return Result{}, err
	}
	start := time.Now()
	err = change(ctx, o, f, c, begun)
	f.end()
	after, herr := c.handshakes()
	if err == nil {
		err = herr
	}
	// Both ends count a handshake, and three sessions are renewed by the clock.
	expected := 3 * int64(time.Since(start)/sessionAge)
	r := Result{
		Changes: c.changed, Packets: f.sent.Load(), Lost: f.lost() + f.twice.Load(), Resets: f.resets.Load(),
		Handshakes: int64(after-before)/2 - expected,
	}
	summary(o, f, c)
	return r, err
}

func change(ctx context.Context, o Options, f *flows, c *changer, begun time.Time) error {
	pace := time.NewTicker(o.Pace)
	defer pace.Stop()
	show := time.NewTicker(time.Second)
	defer show.Stop()
	for c.changed < o.Changes {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-show.C:
			progress(o, f, c, time.Since(begun))
		case <-pace.C:
			if err := c.step(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func intro(o Options) {
	how := "only what differs is written to the device"
	if o.Naive {
		how = "the whole configuration is written at each change, with replace_peers"
	}
	fmt.Fprintf(o.Out, `Three nodes in this process, real WireGuard between them over UDP on loopback; c is behind a NAT.
Each pair exchanges numbered datagrams and two TCP streams while the devices that carry them
are changed %d times: %s. The first
6 s are a control, without a change. Seed %d.
`, o.Changes, how, o.Seed)
}

func progress(o Options, f *flows, c *changer, d time.Duration) {
	end := "\n"
	if o.Live {
		end = "\r"
	}
	fmt.Fprintf(o.Out, "%4.0f s  %6d changes  %8d datagrams sent  %8d on the way or lost  %6.1f MB of TCP  %d resets%s",
		d.Seconds(), c.changed, f.sent.Load(), f.lost(), float64(f.streamed.Load())/1e6, f.resets.Load(), end)
}

func summary(o Options, f *flows, c *changer) {
	names := make([]string, 0, len(c.kinds))
	for name := range c.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("\nSteps taken:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  %6d  %s\n", c.kinds[name], name)
	}
	fmt.Fprintf(&b, "%.1f MB of TCP came in order and unchanged.\n", float64(f.streamed.Load())/1e6)
	io.WriteString(o.Out, b.String())
}
