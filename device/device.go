package device

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// Options say how a Device is opened.
type Options struct {
	// Name of the interface, for the UAPI socket, the state file and logs. "": wg0.
	Name string
	// TUN carries the inner packets. Required. The Device owns it and closes it.
	TUN tun.Device
	// Bind carries the outer packets. nil: NewBind(BindOptions{}). The Device owns it.
	Bind conn.Bind
	// Resolver turns endpoint names into addresses. nil: HostResolver.
	Resolver Resolver
	// StateDir is the folder in which the endpoints of roamed peers survive a restart, in
	// a file of mode 0600. "": they do not.
	StateDir string
	// Log gets warnings, such as of a peer that answers no handshake, a line when a session is
	// up, and what wireguard-go says at debug. The zero Logger is silent.
	Log zerolog.Logger
	// OnChange is told of changes that no Apply, SetPeers or RemovePeers call returns: those
	// made on the UAPI socket and those of the endpoint supervisor. It is called from one
	// goroutine at a time, must not block, and must not call Close.
	OnChange func([]Change)
}

// Errors that callers may look for.
var (
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("device is closed")
	// ErrNoPeer means that no peer's AllowedIPs cover an address. It is a
	// syscall.ENETUNREACH, as from a kernel that has no route.
	ErrNoPeer = fmt.Errorf("no peer's allowed IPs cover the address: %w", syscall.ENETUNREACH)
)

// Device is one live WireGuard interface. All methods may be called from any goroutine.
type Device struct {
	name     atomic.Pointer[string]
	log      zerolog.Logger
	wg       *wg.Device
	bind     *portBind
	tracker  *tracker
	names    *names
	onChange func([]Change)
	telling  sync.Mutex // one onChange at a time

	saveDir   string         // "": nothing is saved
	saved     savedEndpoints // guarded by lock; what the state file holds
	dirty     atomic.Bool    // a live endpoint may differ from saved
	saveAt    time.Time      // guarded by lock; zero: no save is due
	savePause time.Duration  // guarded by lock; from dirty to save

	lock  chan struct{} // held by sending; a channel, so that waiting for it obeys a context
	model model         // guarded by lock
	up    bool          // guarded by lock
	// After a port that could not be opened, wireguard-go would take any. Guarded by lock.
	portLost bool

	wake       chan struct{} // size 1: the supervisor looks again
	ctx        context.Context
	cancel     context.CancelFunc
	done       sync.WaitGroup // supervisor, UAPI
	forwarding sync.WaitGroup // of TUN events, until the TUN is closed
	close      sync.Once
	err        error // of Close
	uapi       uapiListeners
}

// Open returns a device with no key and no peer. It opens its UDP port with the first
// Apply, so that the port is the one configured. Close it to get everything back.
func Open(o Options) (*Device, error) {
	if o.TUN == nil {
		return nil, errors.New("open device: Options.TUN is missing")
	}
	if o.Name == "" {
		o.Name = "wg0"
	}
	if o.Bind == nil {
		o.Bind = NewBind(BindOptions{Log: o.Log})
	}
	if o.Resolver == nil {
		o.Resolver = HostResolver{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Device{
		log:      o.Log,
		bind:     &portBind{Bind: o.Bind},
		tracker:  newTracker(o.Log),
		onChange: o.OnChange,
		lock:     make(chan struct{}, 1),
		model:    newModel(),
		wake:     make(chan struct{}, 1),
		ctx:      ctx,
		cancel:   cancel,
		saved:    savedEndpoints{},

		savePause: saveAfter,
	}
	d.name.Store(&o.Name)
	d.names = newNames(o.Resolver, d.nudge)
	d.load(o.StateDir)
	if b, ok := o.Bind.(interface{ OnNewSource(func()) }); ok {
		b.OnNewSource(d.sourceSeen)
	}
	logger := d.tracker.logger()
	if b, ok := o.Bind.(interface {
		WrapLogger(*wg.Logger) *wg.Logger
	}); ok {
		logger = b.WrapLogger(logger)
	}
	if b, ok := o.Bind.(interface{ SetTunnel(ifindex uint32) }); ok {
		b.SetTunnel(kernelIndex(o.TUN))
	}
	inner := newOwnedTUN(o.TUN)
	d.forwarding.Go(inner.forward)
	d.wg = wg.NewDevice(inner, d.bind, logger)
	d.done.Go(d.supervise)
	return d, nil
}

func (d *Device) load(dir string) {
	if dir == "" {
		return
	}
	d.saveDir = dir
	saved, err := loadSaved(d.savePath())
	if err != nil {
		d.log.Warn().Err(err).Msg("saved endpoints are not used")
	}
	d.saved = saved
}

// acquire takes the lock, or fails when ctx or the device ends first.
func (d *Device) acquire(ctx context.Context) error {
	select {
	case d.lock <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another change of the device: %w", ctx.Err())
	case <-d.ctx.Done():
		return ErrClosed
	}
	if d.ctx.Err() != nil {
		d.release()
		return ErrClosed
	}
	return nil
}

func (d *Device) release() { <-d.lock }

// Apply makes the device equal want and returns what that changed. It validates all of want
// first, and writes only what differs: a second Apply of the same Config writes nothing.
// Untouched peers notice nothing. See Diff for the order.
//
// A Config that no device could obey gives joined *ConfigErrors and changes nothing. Should
// wireguard-go refuse an operation half-way, Apply reads the device back and returns, with
// the error, the changes that were made; the next Apply makes the rest.
func (d *Device) Apply(ctx context.Context, want Config) ([]Change, error) {
	if err := d.acquire(ctx); err != nil {
		return nil, err
	}
	defer d.release()
	want, err := d.complete(want)
	if err != nil {
		return nil, err
	}
	d.model.rename(want.Peers)
	d.forgetPort(want)
	return d.execute(Diff(d.model.state(), want), true)
}

// Plan returns the changes that Apply would make, and makes none.
func (d *Device) Plan(want Config) ([]Change, error) {
	if err := d.acquire(context.Background()); err != nil {
		return nil, err
	}
	defer d.release()
	want, err := d.complete(want)
	if err != nil {
		return nil, err
	}
	return Changes(Diff(d.model.state(), want)), nil
}

// complete normalizes want and fills in the key that it leaves as it is.
func (d *Device) complete(want Config) (Config, error) {
	if want.PrivateKey.IsZero() {
		want.PrivateKey = d.model.privateKey
	}
	return want.Normalized()
}

// SetPeers adds the given peers, or changes those that exist to be as given, and leaves all
// others alone. Its cost depends on the given peers only. A prefix that another peer has is
// an error, unless that peer is given too, without it.
func (d *Device) SetPeers(ctx context.Context, peers ...PeerConfig) ([]Change, error) {
	if err := d.acquire(ctx); err != nil {
		return nil, err
	}
	defer d.release()
	want, err := d.complete(Config{FwMark: d.model.fwMark, Peers: peers})
	if err != nil {
		return nil, err
	}
	if err := d.model.conflicts(want.Peers); err != nil {
		return nil, err
	}
	if n := d.model.countNew(want.Peers); len(d.model.peers)+n > MaxPeers {
		return nil, &ConfigError{Field: "Peers", Reason: fmt.Sprintf("%d more peers would be more than the %d a device can hold", n, MaxPeers)}
	}
	d.model.rename(want.Peers)
	return d.execute(Diff(d.model.stateOf(want.Peers), want), false)
}

// RemovePeers removes the given peers and leaves all others alone. A peer that is not there
// is no error.
func (d *Device) RemovePeers(ctx context.Context, keys ...PublicKey) ([]Change, error) {
	if err := d.acquire(ctx); err != nil {
		return nil, err
	}
	defer d.release()
	var ops []Op
	given := make(map[PublicKey]bool, len(keys))
	for _, key := range keys {
		if p := d.model.peers[key]; p != nil && !given[key] {
			given[key] = true
			s := p.state()
			ops = append(ops, Op{Kind: OpRemovePeer, Peer: key, Name: p.name, old: s.text()})
		}
	}
	return d.execute(ops, false)
}

// State reads the device: configuration, live endpoints, handshakes, counters. It costs
// 5 µs a peer. A handshake for which Reach has returned is in it: wireguard-go counts it a
// moment after it has told of it, for which State waits.
func (d *Device) State() (State, error) {
	for looks := 1; ; looks++ {
		s, told, err := d.stateNow()
		if err != nil || !told || looks == countLooks {
			return s, err
		}
		select {
		case <-time.After(countPause):
		case <-d.ctx.Done():
		}
	}
}

// How long State waits at most for what was told to be counted.
const (
	countLooks = 20
	countPause = time.Millisecond
)

// stateNow also reports whether a handshake was told that is not counted yet.
func (d *Device) stateNow() (s State, told bool, err error) {
	if err := d.acquire(context.Background()); err != nil {
		return State{}, false, err
	}
	defer d.release()
	s, err = d.observe()
	for _, seen := range s.Peers {
		if p := d.model.peers[seen.PublicKey]; p != nil && d.tracker.get(p.wg).stood.After(seen.LastHandshake) {
			told = true
		}
	}
	return s, told, err
}

// Rebind opens the UDP sockets again on the same port. Call it when the network changed in a
// way that the system does not show, such as waking from sleep: sessions go on, and what waits
// unread is lost. It does nothing on a Bind that has no such method.
func (d *Device) Rebind() {
	if b, ok := d.bind.Bind.(interface{ Rebind() }); ok {
		b.Rebind()
	}
}

// BindStats returns what the UDP sockets are and did, and whether the Bind tells it, as that
// of NewBind does.
func (d *Device) BindStats() (BindStats, bool) {
	b, ok := d.bind.Bind.(interface{ Stats() BindStats })
	if !ok {
		return BindStats{}, false
	}
	return b.Stats(), true
}

// Close ends the device and returns its goroutines, sockets and memory. It may be called
// from anywhere but OnChange, at any time, twice.
func (d *Device) Close() error {
	d.close.Do(func() {
		d.cancel()
		d.uapi.close()
		d.done.Wait()
		d.lock <- struct{}{} // for ever: the last change has ended
		d.saveNow()
		d.wg.Close()
		d.forwarding.Wait()
		d.names.wait()
	})
	return d.err
}

// Done is closed when the device has ended: by Close, or because its TUN did.
func (d *Device) Done() <-chan struct{} { return d.wg.Wait() }

// Name returns the interface name.
func (d *Device) Name() string { return *d.name.Load() }

// execute runs operations and folds them into the model. bringUp opens the UDP port when it
// is not open yet. The lock is held.
func (d *Device) execute(ops []Op, bringUp bool) ([]Change, error) {
	addresses := d.addresses(ops)
	if len(ops) > 0 {
		text := appendUAPI(nil, ops, func(op Op) netip.AddrPort { return addresses[op.Peer] })
		if err := d.ipcSet(string(text)); err != nil {
			return d.recover(ops, err)
		}
		d.notePort(ops)
		d.fold(ops, addresses)
	}
	if err := d.bringUp(bringUp); err != nil {
		return Changes(ops), err
	}
	return Changes(ops), nil
}

// fold makes the model what the device has become.
func (d *Device) fold(ops []Op, addresses map[PublicKey]netip.AddrPort) {
	for _, op := range ops {
		if !op.Peer.IsZero() && op.Kind != OpAddPeer && d.model.peers[op.Peer] == nil {
			continue // gone: what was to be done to it is
		}
		switch op.Kind {
		case OpSetListenPort:
			d.model.apply(op)
			d.announce()
		case OpAddPeer:
			d.model.apply(op)
			p := d.model.peers[op.Peer]
			p.wg = d.wg.LookupPeer(wg.NoisePublicKey(op.Peer))
			d.model.byWG[p.wg] = p
			p.declare(op.Endpoint, addresses[op.Peer])
			d.names.use(op.Endpoint)
		case OpSetEndpoint:
			p := d.model.peers[op.Peer]
			d.names.release(p.path.declared)
			d.model.apply(op)
			p.declare(op.Endpoint, addresses[op.Peer])
			d.names.use(op.Endpoint)
		case OpRemovePeer:
			p := d.model.peers[op.Peer]
			d.names.release(p.path.declared)
			d.tracker.forget(p.wg)
			d.model.apply(op)
		default:
			d.model.apply(op)
		}
	}
	d.nudge()
}

// bringUp opens the UDP port at the first Apply, and greets every peer with an endpoint, so
// that a far side that was in mid-flow is back in one round trip and not 15 s later.
func (d *Device) bringUp(wanted bool) error {
	if d.up || !wanted {
		return nil
	}
	port := d.model.listenPort
	if d.portLost {
		if err := d.ipcSet(fmt.Sprintf("listen_port=%d\n", port)); err != nil {
			return fmt.Errorf("set listen port %d: %w", port, err)
		}
	}
	if err := d.wg.Up(); err != nil {
		d.portLost = true
		return fmt.Errorf("open UDP port %d: %w", port, err)
	}
	d.up = true
	d.model.listenPort = d.bind.opened()
	for _, p := range d.model.peers {
		if p.path.applied.IsValid() {
			d.model.greet = append(d.model.greet, p)
		}
	}
	d.nudge()
	if got := d.model.listenPort; port != 0 && got != port {
		return fmt.Errorf("open UDP port %d: got %d", port, got)
	}
	return nil
}

// forgetPort gives up a port that is not open yet, and may never be, when none is wanted.
func (d *Device) forgetPort(want Config) {
	if !d.up && want.ListenPort == 0 && d.model.listenPort != 0 {
		d.model.listenPort, d.portLost = 0, true
	}
}

// notePort fills in which port the system has chosen.
func (d *Device) notePort(ops []Op) {
	for i := range ops {
		if op := &ops[i]; op.Kind == OpSetListenPort && op.ListenPort == 0 {
			op.ListenPort = d.bind.opened()
		}
	}
}

// announce has every peer with a session told of a new port by a packet that comes from it. Who
// only sends would go on to the old one until its session ends, since nothing is heard there.
func (d *Device) announce() {
	now := time.Now()
	d.model.announce = nil
	for _, p := range d.model.peers {
		if d.tracker.get(p.wg).alive(now) {
			d.model.announce = append(d.model.announce, p)
		}
	}
	d.nudge()
}

// nudge wakes the supervisor.
func (d *Device) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// sourceSeen is told by the bind that packets come from an address they never came from.
func (d *Device) sourceSeen() {
	if d.saveDir != "" && d.dirty.CompareAndSwap(false, true) {
		d.nudge()
	}
}

// greetPace is the time between two greetings: 500 a second keep a core free for traffic.
const greetPace = 2 * time.Millisecond

// announceBurst is how many peers are told of a port in greetPace: 8,000 a second.
const announceBurst = 16
