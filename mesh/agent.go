package mesh

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
)

// Memory keeps facts for a restart.
type Memory interface {
	// Load returns what was saved last, nothing when nothing was, and an error when it is
	// damaged: the agent then says so and starts without.
	Load() ([]Update, error)
	// Save replaces what was saved before, all of it or nothing. Load is called before the first
	// Save, and no two of them at once.
	Save([]Update) error
}

// AgentOptions say what an agent runs on.
type AgentOptions struct {
	// Node is the name of this node. Required.
	Node string
	// Key of this node. Required.
	Key device.PrivateKey
	// Mode is how it carries packets. "": TUN.
	Mode Mode
	// Because is why it is this mode, for people; "": nobody says.
	Because string
	// Device that the agent drives. Required. The agent does not close it.
	Device Device
	// Host is the machine around it. Required.
	Host Host
	// Sources of facts.
	Sources []Source
	// Settings hold for what the sources leave open.
	Settings Settings
	// Publisher makes this node's status known; nil: nobody hears of it.
	Publisher Publisher
	// ControlPlane returns the addresses at which the sources are asked, see Local. It does not
	// block; nil: there are none.
	ControlPlane func() []netip.Addr
	// Report is handed each new status. It must not block, and keeps no more than the newest;
	// nil: nobody hears of it but who asks.
	Report func(*Status)
	// Memory keeps the facts for a restart; nil: nothing does.
	Memory Memory
	// ListenPacket opens a UDP socket at a mesh address of this node, for probes. nil: members
	// are neither tested, nor answered.
	ListenPacket func(netip.AddrPort) (net.PacketConn, error)
	// FwMark is set on outer packets, 0: none.
	FwMark uint32
	// ResyncPeriod is how often everything is compared although nothing is known to have
	// changed. 0: never.
	ResyncPeriod time.Duration
	// Plan are the options of the planner.
	Plan Options
	// Log gets one line for each change and each problem's begin and end. The zero Logger is
	// silent.
	Log zerolog.Logger
}

// Agent keeps one node equal to the plan that the facts make for it.
type Agent struct {
	o     AgentOptions
	store *Store
	again chan struct{} // something else than facts may have changed

	toPublish   chan NodeStatus // to the clerk, the newest
	toSave      chan []Update
	unpublished atomic.Int32 // times in a row that publishing failed

	prober *prober // nil: no probes
	status atomic.Pointer[Status]
	asked  chan chan Ahead // what would the next pass do?
	ended  chan struct{}   // Run has returned

	// What follows belongs to the goroutine of Run.
	own         NodeStatus     // what this node says of itself
	leaders     []Leadership   // as the last plan had them
	applied     device.Config  // what the device was last told to be
	begun       map[ID]Problem // problems that were reported to have begun
	published   NodeStatus     // what was last published
	publishedAt time.Time
	passed      time.Time     // when the last pass ended
	pace        time.Duration // how long after it the next may begin that no fact asks for
	savedAt     time.Time
	rival       rival
	schedule    map[task]time.Time // what is to be done again, and when
	failures    int                // passes in a row that had an error
	kept        bool               // the facts were recalled from memory
}

// task is something that the agent does later.
type task string

const (
	look    task = "look"
	retry   task = "retry"
	resync  task = "resync"
	publish task = "publish"
	save    task = "save"
)

// paceFactor keeps what passes cost that no fact asks for, such as each verdict on one of thousands
// of paths, to a tenth of one core.
const paceFactor = 9

// NewAgent returns an agent that does nothing until Run.
func NewAgent(o AgentOptions) (*Agent, error) {
	if o.Node == "" || o.Key.IsZero() || o.Device == nil || o.Host == nil {
		return nil, errors.New("an agent needs a Node, a Key, a Device and a Host")
	}
	if o.Mode == "" {
		o.Mode = TUN
	}
	a := &Agent{
		o:         o,
		store:     NewStore(),
		again:     make(chan struct{}, 1),
		toPublish: make(chan NodeStatus, 1), toSave: make(chan []Update, 1),
		begun:    make(map[ID]Problem),
		schedule: make(map[task]time.Time),
		asked:    make(chan chan Ahead),
		ended:    make(chan struct{}),
	}
	a.own = NodeStatus{PublicKey: o.Key.Public(), Mode: o.Mode}
	if o.ListenPacket != nil {
		a.prober = newProber(o.ListenPacket, o.Device, a.wake, o.Log)
	}
	a.status.Store(&Status{Node: o.Node, Mode: o.Mode, Because: o.Because})
	return a, nil
}

// Status is what the agent knows now. It does not change: call again for what is newer. It may
// be called from any goroutine.
func (a *Agent) Status() *Status { return a.status.Load() }

// wake asks for another look. It never blocks.
func (a *Agent) wake() {
	select {
	case a.again <- struct{}{}:
	default:
	}
}

// Run keeps the node equal to its plan until ctx is done, and returns nil then. It takes nothing
// away when it ends: packets go on to be carried as long as the device is open. An error is that
// of a source or a host that can never work. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	defer close(a.ended)
	start := func(run func(context.Context) error) {
		work.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	a.recall()
	for _, s := range a.o.Sources {
		start(func(ctx context.Context) error { return s.Run(ctx, a.store.Put) })
	}
	start(func(ctx context.Context) error { return a.o.Host.Run(ctx, a.wake) })
	start(a.clerk)
	if a.prober != nil {
		start(a.prober.run)
	}
	a.loop(ctx)
	cause := context.Cause(ctx)
	cancel(nil)
	work.Wait()
	a.saveAtEnd()
	if !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// recall takes up the facts of the last run.
func (a *Agent) recall() {
	if a.o.Memory == nil {
		return
	}
	updates, err := a.o.Memory.Load()
	if err != nil {
		a.o.Log.Error().Err(err).Msg("the facts kept for a restart cannot be read, waiting for the sources")
	}
	for _, u := range updates {
		a.store.Recall(u)
		a.kept = true
	}
}

// loop is the only place from which the device and the host are changed.
func (a *Agent) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.store.Changed():
			a.saveLater()
		case <-a.again:
			if wait := a.pace - time.Since(a.passed); wait > 0 {
				a.later(look, wait)
				timer.Reset(a.untilNext())
				continue
			}
		case <-timer.C:
		case answer := <-a.asked:
			answer <- a.lookAhead()
			continue
		}
		start := time.Now()
		a.due(look)
		a.pass(ctx)
		a.chores()
		a.passed = time.Now()
		a.pace = paceFactor * a.passed.Sub(start)
		timer.Reset(a.untilNext())
	}
}

// later schedules a task unless it already is.
func (a *Agent) later(t task, d time.Duration) {
	if _, scheduled := a.schedule[t]; !scheduled {
		a.schedule[t] = time.Now().Add(d)
	}
}

// due reports whether it is time for a task, and takes it off the schedule if so.
func (a *Agent) due(t task) bool {
	at, scheduled := a.schedule[t]
	if !scheduled || time.Now().Before(at) {
		return false
	}
	delete(a.schedule, t)
	return true
}

func (a *Agent) untilNext() time.Duration {
	next := 24 * time.Hour
	for _, at := range a.schedule {
		next = min(next, time.Until(at))
	}
	return max(next, 0)
}
