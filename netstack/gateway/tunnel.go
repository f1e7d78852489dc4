package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

// tunnel is a Tunnel that runs: a Dialer and a PacketListener for proxies, and a place to
// listen in. The loop of the gateway changes and closes it; anyone may use the rest.
type tunnel struct {
	net  *netstack.Net
	name *atomic.Pointer[string] // as logs have it

	mu   sync.Mutex
	spec Tunnel
}

// named adds the name to each line, whatever it is by then.
func named(name *atomic.Pointer[string]) zerolog.Hook {
	return zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) { e.Str("tunnel", *name.Load()) })
}

// rename gives the device another name, and what is called after it.
func (t *tunnel) rename(name string) error {
	if err := t.net.Device().Rename(name); err != nil {
		return err
	}
	t.name.Store(&name)
	return nil
}

// openTunnel opens a tunnel as its file says.
func (g *Gateway) openTunnel(spec Tunnel, settings Spec) (*tunnel, error) {
	if spec.isGiven() {
		return &tunnel{net: spec.Net, spec: spec}, nil
	}
	name := new(atomic.Pointer[string])
	name.Store(&spec.Name)
	log := g.log.Hook(named(name))
	o := netstack.FromFile(spec.File)
	o.Name = spec.Name
	o.HostDNS = spec.HostDNS
	o.Resolver = g.options.Resolver
	o.StateDir = settings.StateDir
	o.Log = log
	o.OnChange = func(changes []device.Change) { logChanges(g.log, fromDevice(*name.Load(), changes)) }
	bind := g.options.Bind
	bind.Log = log
	o.Bind = device.NewBind(bind)
	n, err := netstack.Open(o)
	if err != nil {
		return nil, err
	}
	if settings.UAPIDir != "" {
		if err := n.Device().ListenUAPI(settings.UAPIDir); err != nil {
			n.Close()
			return nil, fmt.Errorf("%w: choose a folder that this user can write to, with --uapi or uapiDir", err)
		}
	}
	return &tunnel{net: n, name: name, spec: spec}, nil
}

func (t *tunnel) now() Tunnel {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spec
}

// close leaves open what another has opened.
func (t *tunnel) close() {
	if spec := t.now(); !spec.isGiven() {
		t.net.Close()
	}
}

// plan returns what change would do inside the device.
func (t *tunnel) plan(want Tunnel) ([]Change, error) {
	if want.isGiven() {
		return nil, nil
	}
	changes, err := t.net.Device().Plan(want.File.Config)
	return fromFile(t.now(), want, changes), err
}

// change makes the tunnel what want says and returns what that changed inside the device.
// Addresses come before peers that may be reached from them, and a smaller MTU before
// packets that need it. What is equal is not touched.
func (t *tunnel) change(ctx context.Context, want Tunnel) ([]Change, error) {
	if want.isGiven() {
		return nil, nil
	}
	have := t.now()
	if !slices.Equal(t.net.Addresses(), want.File.Addresses) {
		if err := t.net.SetAddresses(want.File.Addresses); err != nil {
			return nil, err
		}
	}
	if t.mtu() != mtuOf(want) {
		if err := t.net.SetMTU(mtuOf(want)); err != nil {
			return nil, err
		}
	}
	changes, err := t.net.Apply(ctx, want.File.Config)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(have.File.DNS, want.File.DNS) || !slices.Equal(have.File.DNSSearch, want.File.DNSSearch) {
		t.net.SetDNS(want.File.DNS, want.File.DNSSearch...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spec = want
	return fromFile(have, want, changes), nil
}

// mtu is that of the stack now.
func (t *tunnel) mtu() int {
	n, err := t.net.Stack().MTU()
	if err != nil {
		return 0
	}
	return n
}

func mtuOf(t Tunnel) int {
	if t.File.MTU == 0 {
		return netstack.DefaultMTU
	}
	return t.File.MTU
}

// DialContext reaches a target through the tunnel.
func (t *tunnel) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return t.net.DialContext(ctx, network, address)
}

// ListenPacket opens a UDP socket in the tunnel.
func (t *tunnel) ListenPacket(_ context.Context, network, address string) (net.PacketConn, error) {
	return t.net.ListenPacket(network, address)
}

// listen opens a publish. It says "of the tunnel" in the words of netstack.
func (t *tunnel) listen(l Listen) (net.Listener, error) {
	ln, err := t.net.ListenTCPAddrPort(inside(l.Addr))
	if err != nil {
		return nil, fmt.Errorf("cannot listen in the tunnel: %w", err)
	}
	return ln, nil
}

func (t *tunnel) listenPacket(l Listen) (net.PacketConn, error) {
	pc, err := t.net.ListenUDPAddrPort(inside(l.Addr))
	if err != nil {
		return nil, fmt.Errorf("cannot listen in the tunnel: %w", err)
	}
	return pc, nil
}

// inside is a publish's address as netstack takes it.
func inside(a netip.AddrPort) netip.AddrPort {
	if !a.Addr().IsValid() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), a.Port()) // both families
	}
	return a
}

// status asks the device, which is too much for anything but a request.
func (t *tunnel) status(now time.Time) TunnelStatus {
	spec := t.now()
	s := TunnelStatus{
		Name:      spec.Name,
		File:      spec.File.Path,
		Addresses: t.net.Addresses(),
		DNS:       spec.File.DNS,
		MTU:       t.mtu(),
		Drops:     byName(t.net.Stack().Stats().Drops),
	}
	state, err := t.net.State()
	if err != nil {
		s.Down = err.Error()
		return s
	}
	select {
	case <-t.net.Device().Done():
		s.Down = "the device has ended by itself: restart the gateway"
		return s
	default:
	}
	s.Up, s.PublicKey, s.ListenPort = true, state.PublicKey, state.ListenPort
	for _, p := range state.Peers {
		s.Peers = append(s.Peers, peerStatus(p, now))
	}
	return s
}

// logChanges logs a line for each, under the key that all other lines of it have. The old and the new value say it all but where there are
// many values, of which one has changed.
func logChanges(log zerolog.Logger, changes []Change) {
	for _, c := range changes {
		e := log.Info()
		if tunnel, ok := strings.CutPrefix(c.What, "tunnel "); ok {
			tunnel, _, _ = strings.Cut(tunnel, " ")
			e.Str("tunnel", tunnel)
		} else if c.What != "gateway" {
			e.Str("service", c.What)
		}
		e.Str("what", c.What).Str("field", c.Field)
		if one := c.difference(); strings.Contains(one, " -> ") {
			e.Str("old", c.Old).Str("new", c.New)
		} else {
			e.Str("change", one)
		}
		e.Str("cause", c.Cause).Msg("changed")
	}
}
