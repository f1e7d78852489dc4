package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack/proxy"
)

// settle is how long a file may be missing before that is taken to be meant: some editors
// and tools remove a file before they write it anew.
const settle = 2 * time.Second

// Options say what a Gateway is.
type Options struct {
	Sources Sources
	// Unwatched leaves files alone until Reload is called.
	Unwatched bool
	// Bind is how each tunnel's UDP socket is opened. Its Log is set by the gateway.
	Bind device.BindOptions
	// Resolver turns endpoint names into addresses. nil: this machine's.
	Resolver device.Resolver
	Log      zerolog.Logger // the zero Logger is silent

	mayMark  func() bool   // in the place of the function of that name, for tests
	patience time.Duration // in the place of loadTime, for tests
}

// ErrNotRunning is returned by what needs a Gateway that has started and not yet ended.
var ErrNotRunning = errors.New("the gateway is not running")

// Gateway runs what its sources ask for. Make one with New, run it once with Run.
type Gateway struct {
	options Options
	log     zerolog.Logger
	orders  chan order
	up      chan struct{} // closed once all of it runs
	abort   chan struct{} // closed by Abort
	aborted sync.Once
	closing chan struct{} // closed when the loop has ended
	ran     atomic.Bool

	reading  chan struct{} // places of those who read for the loop: one
	planning chan struct{} // and for plans
	patience time.Duration // with them

	now      atomic.Pointer[running] // what runs, for readers; nil before and after
	outcome  outcome
	buffers  proxy.Buffers // of all flows
	draining atomic.Bool
	watched  atomic.Bool

	// Owned by the loop in Run.
	watch     *watcher
	reads     *reads          // what the last Load read, obeyed or not
	retry     retry           // of what the system has refused
	departing []departure     // tunnels that are on their way out
	leaving   sync.WaitGroup  // what stops in the background
	flows     context.Context // ends when flows must end
}

// order is what the loop is asked to do between two other things.
type order func(ctx context.Context)

// New returns a gateway that has not started. It opens nothing.
func New(o Options) *Gateway {
	if o.mayMark == nil {
		o.mayMark = mayMark
	}
	return &Gateway{
		options:  o,
		log:      o.Log,
		orders:   make(chan order),
		up:       make(chan struct{}),
		abort:    make(chan struct{}),
		closing:  make(chan struct{}),
		reading:  make(chan struct{}, 1),
		planning: make(chan struct{}, 4),
		patience: cmp.Or(o.patience, loadTime),
	}
}

// Run loads, starts and serves until ctx ends. Then the gateway drains: it is not ready,
// takes no new flow, gives old flows the drain time, aborts what is left, and Run returns
// nil. Run returns an error, with everything closed, when it could not start. It may be
// called once.
func (g *Gateway) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return errors.New("a Gateway can run only once")
	}
	flows, cancel := context.WithCancel(context.Background())
	defer cancel()
	g.flows = flows
	if err := g.start(ctx); err != nil {
		close(g.closing)
		return err
	}
	defer g.stop(cancel)
	defer close(g.closing)
	if g.watch != nil {
		watching, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); g.watch.run(watching) }()
		defer g.waitFor(ended)
		defer stop()
	}
	close(g.up)
	g.log.Info().Int("tunnels", len(g.now.Load().tunnels)).Int("services", len(g.now.Load().services)).Msg("gateway is ready")
	g.loop(ctx)
	return nil
}

// waitFor waits for a goroutine that looks at files, unless they are where all hangs.
func (g *Gateway) waitFor(ended <-chan struct{}) {
	late := time.NewTimer(g.patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
}

// Up is closed once every tunnel and listener is up for the first time.
func (g *Gateway) Up() <-chan struct{} { return g.up }

// Abort ends the drain time of a gateway that is stopping: flows that are left are reset.
func (g *Gateway) Abort() { g.aborted.Do(func() { close(g.abort) }) }

// start loads and opens everything, or nothing.
func (g *Gateway) start(ctx context.Context) error {
	l, err := g.loaded(ctx, g.options.Sources, newReads(), g.reading)
	if err != nil {
		return err
	}
	g.reads = l.reads
	if err := errors.Join(l.errs...); err != nil {
		return err
	}
	g.now.Store(newRunning())
	if _, err := g.apply(ctx, l.spec); err != nil {
		g.now.Store(nil)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	g.outcome.obeyed(g.reads.paths(), time.Now())
	g.tell(Spec{}, l.spec)
	if g.options.Unwatched {
		return nil
	}
	w, err := newWatcher(g.log)
	if err != nil {
		g.log.Warn().Err(err).Msg("files are not watched: changes need SIGHUP")
		return nil
	}
	g.watch = w
	g.watched.Store(true)
	w.watch(g.reads.paths())
	return nil
}

// load is load, less what this process has no right to.
func (g *Gateway) load(s Sources, r *reads) *loader {
	l := load(s, r)
	for i := range l.spec.Tunnels {
		t := &l.spec.Tunnels[i]
		mark := t.File.Config.FwMark
		if mark == 0 || g.options.mayMark() {
			continue
		}
		file := *t.File
		file.Config.FwMark = 0
		t.File = &file
		l.warn(file.Path, "FwMark", fmt.Sprintf("%#x", mark), "is not set: it needs CAP_NET_ADMIN, and matters only where routes of this machine look at it")
	}
	return l
}

// tell logs what is read and not obeyed, or not as some expect, when it is new.
func (g *Gateway) tell(old, s Spec) {
	for _, n := range s.Ignored {
		if !slices.ContainsFunc(old.Ignored, sameNotice(n)) {
			g.log.Info().Stringer("line", n).Msg("configuration line is ignored")
		}
	}
	for _, n := range s.Warnings {
		if !slices.ContainsFunc(old.Warnings, sameNotice(n)) {
			g.log.Warn().Stringer("line", n).Msg("configuration warning")
		}
	}
}

// sameNotice tells a notice that was told already, in whatever line it stood.
func sameNotice(n device.Notice) func(device.Notice) bool {
	return func(other device.Notice) bool { other.Line = n.Line; return other == n }
}

// loop does one thing after another until ctx ends.
func (g *Gateway) loop(ctx context.Context) {
	var changed <-chan struct{}
	if g.watch != nil {
		changed = g.watch.changed
	}
	gone := time.NewTimer(0)
	gone.Stop()
	defer gone.Stop()
	g.retry = newRetry()
	defer g.retry.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-g.orders:
			do(ctx)
		case <-changed:
			now, err := elsewhere(ctx, g.reading, g.patience, g.reads.again)
			if err == nil && now.equal(g.reads) {
				continue
			}
			if err == nil && now.missing() {
				gone.Reset(settle)
				continue
			}
			gone.Stop()
			g.reload(ctx)
		case <-gone.C:
			if now, err := elsewhere(ctx, g.reading, g.patience, g.reads.again); err != nil || !now.equal(g.reads) {
				g.reload(ctx)
			}
		case <-g.retry.due():
			g.reload(ctx)
		}
	}
}

// do has the loop run f, and waits for it as long as ctx lasts.
func (g *Gateway) do(ctx context.Context, f func(ctx context.Context)) error {
	done := make(chan struct{})
	select {
	case g.orders <- func(ctx context.Context) { defer close(done); f(ctx) }:
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case <-ctx.Done():
		return ctx.Err()
	case <-g.closing:
		return ErrNotRunning
	}
}

// Reload reads all sources again and applies what differs. When they cannot be obeyed
// nothing changes, and the error says why; it is logged already and shown by Status.
func (g *Gateway) Reload(ctx context.Context) (changes []Change, err error) {
	if !g.ran.Load() {
		return nil, ErrNotRunning
	}
	type result struct {
		changes []Change
		err     error
	}
	done := make(chan result, 1)
	order := func(ctx context.Context) {
		g.retry.stop() // who asks gets an answer
		changes, err := g.reload(ctx)
		done <- result{changes, err}
	}
	if err := g.do(ctx, order); err != nil {
		return nil, err
	}
	r := <-done
	changes, err = r.changes, r.err
	if err == nil && len(changes) == 0 {
		g.log.Info().Msg("configuration was read again: nothing differs")
	}
	return changes, err
}

// reload is one try. One that follows by itself on a refusal of the system says nothing new
// unless there is something.
func (g *Gateway) reload(ctx context.Context) ([]Change, error) {
	l, err := g.loaded(ctx, g.options.Sources, newReads(), g.reading)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var changes []Change
	old := g.now.Load().spec
	if err == nil {
		g.reads = l.reads
		g.watchAgain()
		changes, err = g.obey(ctx, l)
	} else {
		g.retry.after(err)
	}
	if err != nil {
		g.rejected(err)
		return nil, err
	}
	g.retry.end()
	if g.outcome.obeyed(g.reads.paths(), time.Now()) {
		g.log.Info().Msg("configuration is accepted again")
	}
	logChanges(g.log, changes)
	g.tell(old, l.spec)
	return changes, nil
}

// obey applies what was read. What the files say wrong is not worth another try.
func (g *Gateway) obey(ctx context.Context, l *loader) ([]Change, error) {
	if err := errors.Join(l.errs...); err != nil {
		g.retry.end()
		return nil, err
	}
	changes, err := g.apply(ctx, l.spec)
	if err != nil {
		g.retry.after(err)
	}
	return changes, err
}

// rejected logs why nothing changes, and what comes next.
func (g *Gateway) rejected(err error) {
	news := g.outcome.rejected(err, time.Now())
	if !news && g.retry.tries > 1 {
		g.log.Debug().Err(err).Int("tries", g.retry.tries).Msg("the system refuses the configuration still")
		return
	}
	for _, reason := range reasons(err) {
		g.log.Error().Str("reason", reason).Msg("configuration is rejected: what ran before runs on")
	}
	if g.retry.tries > 0 {
		g.log.Info().Msg("it is tried again by itself, as another program or the system was in the way")
	}
}

// watchAgain watches what the last Load read, and what runs: a file that is named no more
// by a file that is at fault may be what mends it.
func (g *Gateway) watchAgain() {
	if g.watch != nil {
		g.watch.watch(g.reads.paths())
	}
}

// Plan says what Reload would change, and changes nothing. Each of files, an absolute path,
// is read in the place of the tunnel of its name; with one tunnel and one file the name does
// not matter. Whether listeners can be opened is not tried.
func (g *Gateway) Plan(ctx context.Context, files ...string) (p Plan, err error) {
	if !g.ran.Load() {
		return Plan{}, ErrNotRunning
	}
	now := g.now.Load()
	if now == nil {
		return Plan{}, ErrNotRunning
	}
	sources := g.options.Sources
	if sources.instead, err = instead(now.spec, files); err != nil {
		return Plan{Refused: reasons(err)}, nil
	}
	r := newReads()
	r.strict = len(files) > 0
	l, err := g.loaded(ctx, sources, r, g.planning)
	switch {
	case ctx.Err() != nil:
		return Plan{}, ctx.Err()
	case err == nil:
		err = errors.Join(l.errs...)
	}
	if err != nil {
		return Plan{Refused: reasons(err)}, nil
	}
	done := make(chan Plan, 1)
	if err := g.do(ctx, func(context.Context) { done <- g.compare(l.spec) }); err != nil {
		return Plan{}, err
	}
	return <-done, nil
}

// compare says what would change if want were applied.
func (g *Gateway) compare(want Spec) Plan {
	now := g.now.Load()
	steps := difference(now.spec, want)
	for _, pair := range steps.keep {
		changes, err := now.tunnels[pair.have.Name].plan(pair.want)
		if err != nil {
			return Plan{Refused: reasons(err)}
		}
		steps.changes = append(steps.changes, changes...)
	}
	return Plan{Changes: steps.changes}
}

// instead maps tunnels to the files that stand for theirs in a plan.
func instead(s Spec, files []string) (map[string]string, error) {
	if len(files) == 1 && len(s.Tunnels) == 1 {
		return map[string]string{s.Tunnels[0].Name: files[0]}, nil
	}
	m := make(map[string]string)
	var errs []error
	for _, path := range files {
		name := tunnelName(path)
		if s.tunnel(name) == nil {
			errs = append(errs, &Error{Source: path, Reason: "has the name of no tunnel that runs: " + meant(name, s.tunnelNames())})
		}
		m[name] = path
	}
	return m, errors.Join(errs...)
}

// reasons takes joined errors apart: one line each.
func reasons(err error) (out []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, reasons(e)...)
		}
		return out
	}
	return []string{err.Error()}
}
