package netstack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rs/zerolog"
	"github.com/stillwire/stillwire/device"
	"golang.zx2c4.com/wireguard/conn"
)

// Options say what Open opens. The zero value opens a tunnel with no address, no key and no
// peer, which Apply and SetAddresses can give it later.
type Options struct {
	// Name is what the tunnel is called in logs, the state file and the UAPI socket. "" is
	// "wg0".
	Name string
	// Config is WireGuard's part: key, port, peers.
	Config device.Config
	// Addresses are the tunnel addresses of this end, as in wg-quick's Address.
	Addresses []netip.Prefix
	// MTU is the size in bytes of the largest IP packet in the tunnel. 0 is DefaultMTU.
	MTU int

	// DNS are the servers, behind the tunnel, that turn names into addresses. With none,
	// only IP addresses can be dialled.
	DNS []netip.Addr
	// DNSSearch are the domains that are tried behind a name without a dot.
	DNSSearch []string
	// HostDNS asks the host's resolver instead: names are looked up outside the tunnel, in
	// clear text, and the addresses found are dialled inside. Never done unless asked for.
	HostDNS bool

	// QueueLength is how many outbound packets wait for WireGuard before those who send
	// wait too. 0 is DefaultQueueLength.
	QueueLength int

	// Bind carries the outer packets. nil is the device's own.
	Bind conn.Bind
	// Resolver turns the endpoint names of peers into addresses, outside the tunnel. nil is
	// the host's.
	Resolver device.Resolver
	// StateDir is where the endpoints of roamed peers survive a restart. "": they do not.
	StateDir string
	// Log gets what changes, and warnings. The zero value is silent. What gVisor says goes
	// elsewhere: see LogGVisor.
	Log zerolog.Logger
	// OnChange is told of changes of the device that no call of Apply, SetPeers or
	// RemovePeers returns. See device.Options.
	OnChange func([]device.Change)
}

// FromFile returns the options that a wg-quick file stands for, to be used as they are or
// changed first.
func FromFile(f *device.File) Options {
	return Options{
		Config:    f.Config,
		Addresses: f.Addresses,
		MTU:       f.MTU,
		DNS:       f.DNS,
		DNSSearch: f.DNSSearch,
	}
}

// Net is a WireGuard tunnel and the TCP/IP stack at this end of it, in the process: no
// interface of the system, no privilege. All methods may be called from any goroutine,
// Close included.
type Net struct {
	stack    *Stack
	device   *device.Device
	resolver *Resolver
}

// Open makes the stack, opens the device, and applies o.Config. The tunnel works when it
// returns; handshakes come with the first use.
func Open(o Options) (*Net, error) {
	s, err := NewStack(StackOptions{
		Name: o.Name, Addresses: o.Addresses, MTU: o.MTU, QueueLength: o.QueueLength, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("open tunnel: %w", err)
	}
	d, err := device.Open(device.Options{
		Name: o.Name, TUN: s, Bind: o.Bind, Resolver: o.Resolver, StateDir: o.StateDir, Log: o.Log, OnChange: o.OnChange,
	})
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open tunnel: %w", err)
	}
	n := &Net{stack: s, device: d}
	n.resolver = newResolver(n.dialServer, s.Addresses, o.HostDNS)
	n.SetDNS(o.DNS, o.DNSSearch...)
	if err := n.configure(o.Config); err != nil {
		return nil, errors.Join(fmt.Errorf("open tunnel: %w", err), n.Close())
	}
	return n, nil
}

// configure applies a Config that says anything. An empty one would open a port for nobody.
func (n *Net) configure(c device.Config) error {
	if c.PrivateKey.IsZero() && c.ListenPort == 0 && len(c.Peers) == 0 {
		return nil
	}
	_, err := n.device.Apply(context.Background(), c)
	return err
}

// Stack is the TCP/IP stack: addresses, MTU, counters, and dials that wait for no handshake.
func (n *Net) Stack() *Stack { return n.stack }

// Device is the WireGuard device.
func (n *Net) Device() *device.Device { return n.device }

// Resolver turns names into addresses through the tunnel.
func (n *Net) Resolver() *Resolver { return n.resolver }

// Apply makes the device equal want, changing only what differs. See device.Device.Apply.
func (n *Net) Apply(ctx context.Context, want device.Config) ([]device.Change, error) {
	return n.device.Apply(ctx, want)
}

// State is what the device was seen to be just now.
func (n *Net) State() (device.State, error) { return n.device.State() }

// SetPeers adds the given peers, or changes those that exist, and leaves all others alone.
func (n *Net) SetPeers(ctx context.Context, peers ...device.PeerConfig) ([]device.Change, error) {
	return n.device.SetPeers(ctx, peers...)
}

// RemovePeers removes the given peers and leaves all others alone.
func (n *Net) RemovePeers(ctx context.Context, keys ...device.PublicKey) ([]device.Change, error) {
	return n.device.RemovePeers(ctx, keys...)
}

// SetAddresses makes the tunnel addresses those given. See Stack.SetAddresses.
func (n *Net) SetAddresses(addresses []netip.Prefix) error { return n.stack.SetAddresses(addresses) }

// Addresses are the tunnel addresses in the order given.
func (n *Net) Addresses() []netip.Prefix { return n.stack.Addresses() }

// SetMTU changes the size of the largest packet in the tunnel. See Stack.SetMTU.
func (n *Net) SetMTU(mtu int) error { return n.stack.SetMTU(mtu) }

// SetDNS changes the DNS servers and search domains for lookups from now on.
func (n *Net) SetDNS(servers []netip.Addr, search ...string) { n.resolver.set(servers, search) }

// Ping sends ICMP echo requests to addr until one is answered or ctx ends, after waiting
// for a session with the peer that owns addr. The time returned is that of the one answered.
func (n *Net) Ping(ctx context.Context, addr netip.Addr) (time.Duration, error) {
	if err := n.reach(ctx, addr); err != nil {
		return 0, opError("ping", "ip", nil, pingAddr(addr), err)
	}
	return n.stack.Ping(ctx, addr)
}

// Close ends all connections and waits, closes the device and its UDP sockets, and returns
// when all goroutines have ended. It may be called more than once.
func (n *Net) Close() error {
	return errors.Join(n.device.Close(), n.stack.Close())
}
