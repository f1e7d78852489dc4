package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
	nowhere   = netip.AddrFrom4([4]byte{127, 0, 0, 9}) // where nobody listens
)

// natName is the DNS name under which a and b know c.
const natName = "c.localhost"

// world is the three nodes, the NAT and the resolver.
type world struct {
	nodes    []*node
	nat      *nat
	names    *names
	families []netip.Addr // loopback addresses that this machine has
}

// names answers for natName alone, and can be moved.
type names struct {
	mu   sync.Mutex
	addr netip.Addr
}

func (n *names) Resolve(_ context.Context, host string) (device.Answer, error) {
	if host != natName {
		return device.Answer{}, fmt.Errorf("no such host: %s", host)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return device.Answer{Addrs: []netip.Addr{n.addr}, TTL: time.Second}, nil
}

func (n *names) move(to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = to
}

func (n *names) at() netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// newWorld opens the nodes and gives them to each other as peers.
func newWorld(ctx context.Context, whole bool) (*world, error) {
	w := &world{families: []netip.Addr{loopback4}, names: &names{addr: loopback4}}
	if c, err := net.ListenPacket("udp6", "[::1]:0"); err == nil {
		c.Close()
		w.families = append(w.families, loopback6)
	}
	for i, name := range []string{"a", "b", "c"} {
		n, err := w.newNode(name, netip.AddrFrom4([4]byte{10, 77, byte(i + 1), 1}), whole)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("node %s: %w", name, err), w.close())
		}
		w.nodes = append(w.nodes, n)
	}
	a, b := w.nodes[0], w.nodes[1]
	var err error
	w.nat, err = newNAT(netip.AddrPortFrom(loopback4, a.port), netip.AddrPortFrom(loopback4, b.port))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("NAT: %w", err), w.close())
	}
	for i, n := range w.nodes {
		n.config = device.Config{PrivateKey: n.key}
		for j, p := range w.nodes {
			if i != j {
				n.config.Peers = append(n.config.Peers, device.PeerConfig{
					PublicKey: p.key.Public(), Name: p.name, Endpoint: w.endpoint(i, j, whole), AllowedIPs: cuts(p.inner)[0],
				})
			}
		}
		if _, err := n.Apply(ctx, n.config); err != nil {
			return nil, errors.Join(fmt.Errorf("node %s: %w", n.name, err), w.close())
		}
	}
	return w, nil
}

// newNode opens a node on a port of the system's choice.
func (w *world) newNode(name string, inner netip.Addr, whole bool) (*node, error) {
	key, err := device.NewPrivateKey()
	if err != nil {
		return nil, err
	}
	n := &node{name: name, key: key, inner: inner}
	bind := &notedBind{Bind: device.NewBind(device.BindOptions{Addrs: w.families})}
	addresses := []netip.Prefix{netip.PrefixFrom(inner, 24)}
	if whole {
		if n.stack, err = netstack.NewStack(netstack.StackOptions{Name: name, Addresses: addresses}); err != nil {
			return nil, err
		}
		engine, err := newNaive(n.stack, bind)
		if err != nil {
			return nil, errors.Join(err, engine.Close())
		}
		n.engine = engine
	} else {
		t, err := netstack.Open(netstack.Options{
			Name: name, Config: device.Config{PrivateKey: key}, Addresses: addresses, Bind: bind, Resolver: w.names,
		})
		if err != nil {
			return nil, err
		}
		n.stack, n.engine = t.Stack(), stillwire{t}
	}
	n.port = bind.port
	return n, nil
}

// notedBind tells which port it got.
type notedBind struct {
	conn.Bind
	port uint16
}

func (b *notedBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, got, err := b.Bind.Open(port)
	if err == nil {
		b.port = got
	}
	return fns, got, err
}

// endpoint is where node i declares node j to be. c is behind the NAT, and so are a and b
// for c. A name needs somebody to resolve it, which the naive way leaves to others.
func (w *world) endpoint(i, j int, whole bool) device.Endpoint {
	switch {
	case i == 2:
		return device.EndpointFrom(localAddr(w.nat.inside[j]))
	case j == 2 && !whole:
		return device.Endpoint{Host: natName, Port: w.nat.address().Port()}
	case j == 2:
		return device.EndpointFrom(w.nat.address())
	}
	return device.EndpointFrom(netip.AddrPortFrom(loopback4, w.nodes[j].port))
}

// cuts are three ways to cover a node's network, to be changed from one to the next.
func cuts(inner netip.Addr) [][]netip.Prefix {
	b := inner.As4()
	part := func(last byte, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{b[0], b[1], b[2], last}), bits)
	}
	return [][]netip.Prefix{
		{part(0, 24)},
		{part(0, 25), part(128, 25)},
		{part(1, 32), part(0, 26), part(64, 26)},
	}
}

func (w *world) handshakes() (total uint64, err error) {
	for _, n := range w.nodes {
		h, err := n.Handshakes()
		if err != nil {
			return 0, err
		}
		total += h
	}
	return total, nil
}

func (w *world) close() error {
	var errs []error
	for _, n := range w.nodes {
		errs = append(errs, n.Close())
	}
	if w.nat != nil {
		w.nat.close()
	}
	return errors.Join(errs...)
}
