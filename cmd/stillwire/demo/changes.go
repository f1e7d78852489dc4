package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/stillwire/stillwire/device"
)

// changer changes the devices under the traffic, by turns and by chance.
type changer struct {
	*world
	rand  *rand.Rand
	whole bool

	changed int            // things changed
	same    int            // configurations applied again unchanged
	refused int            // bad configurations, thrown back
	kinds   map[string]int // steps taken, by kind
}

// idlePeers is how many peers that nobody is behind one device gets at most.
const idlePeers = 200

// step is one change of one kind.
func (c *changer) step(ctx context.Context) error {
	kinds := []struct {
		name string
		do   func(context.Context, *node) error
	}{
		{"peers come and go", c.peers},
		{"allowed IPs grow, move and shrink", c.extraPrefixes},
		{"allowed IPs of the traffic are cut anew", c.recut},
		{"endpoint declared anew", c.redeclare},
		{"keepalive", c.keepalive},
		{"preshared key", c.presharedKey},
		{"nothing differs", c.again},
		{"name moves", c.moveName},
		{"NAT takes a new port", c.roam},
		{"bad configuration", c.bad},
	}
	weights := []int{20, 20, 15, 10, 10, 10, 10, 2, 1, 2}
	i := c.pick(weights)
	c.kinds[kinds[i].name]++
	n := c.nodes[c.rand.IntN(len(c.nodes))]
	if err := kinds[i].do(ctx, n); err != nil {
		return fmt.Errorf("node %s: %s: %w", n.name, kinds[i].name, err)
	}
	return nil
}

func (c *changer) pick(weights []int) int {
	total := 0
	for _, w := range weights {
		total += w
	}
	at := c.rand.IntN(total)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func (c *changer) apply(ctx context.Context, n *node) error {
	changed, err := n.Apply(ctx, n.config)
	c.changed += changed
	return err
}

// real is one of the two peers that carry traffic.
func (c *changer) real(n *node) *device.PeerConfig { return &n.config.Peers[c.rand.IntN(2)] }

// peers adds a few peers that nobody is behind, or removes some.
func (c *changer) peers(ctx context.Context, n *node) error {
	idle := len(n.config.Peers) - 2
	if idle > 0 && (idle >= idlePeers || c.rand.IntN(2) == 0) {
		from := 2 + c.rand.IntN(idle)
		to := min(from+1+c.rand.IntN(20), len(n.config.Peers))
		n.config.Peers = slices.Delete(slices.Clone(n.config.Peers), from, to)
		return c.apply(ctx, n)
	}
	for range 1 + c.rand.IntN(20) {
		var key device.PublicKey
		for i := range key {
			key[i] = byte(c.rand.Uint32())
		}
		addr := netip.AddrFrom4([4]byte{10, 78, byte(c.rand.Uint32()), byte(c.rand.Uint32())})
		p := device.PeerConfig{PublicKey: key, AllowedIPs: []netip.Prefix{netip.PrefixFrom(addr, 32)}}
		taken := slices.ContainsFunc(n.config.Peers, func(o device.PeerConfig) bool { return slices.Contains(o.AllowedIPs, p.AllowedIPs[0]) })
		if !taken {
			n.config.Peers = append(n.config.Peers, p)
		}
	}
	return c.apply(ctx, n)
}

// extraPrefixes gives a prefix to one real peer, moves it to the other, or takes it away.
func (c *changer) extraPrefixes(ctx context.Context, n *node) error {
	prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 79, byte(c.rand.IntN(32)), 0}), 24)
	one, other := &n.config.Peers[0], &n.config.Peers[1]
	if c.rand.IntN(2) == 0 {
		one, other = other, one
	}
	if slices.Contains(one.AllowedIPs, prefix) {
		one.AllowedIPs = without(one.AllowedIPs, prefix)
	} else {
		other.AllowedIPs = without(other.AllowedIPs, prefix)
		one.AllowedIPs = append(slices.Clone(one.AllowedIPs), prefix)
	}
	return c.apply(ctx, n)
}

func without(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(list), func(have netip.Prefix) bool { return have == p })
}

// recut changes the prefixes that the traffic itself goes by.
func (c *changer) recut(ctx context.Context, n *node) error {
	p := c.real(n)
	i := slices.IndexFunc(c.nodes, func(o *node) bool { return o.key.Public() == p.PublicKey })
	ways := cuts(c.nodes[i].inner)
	extra := slices.DeleteFunc(slices.Clone(p.AllowedIPs), func(have netip.Prefix) bool { return ways[0][0].Overlaps(have) })
	p.AllowedIPs = append(extra, ways[c.rand.IntN(len(ways))]...)
	return c.apply(ctx, n)
}

// redeclare writes down another address at which the peer really is.
func (c *changer) redeclare(ctx context.Context, n *node) error {
	i := slices.Index(c.nodes, n)
	p := c.real(n)
	j := slices.IndexFunc(c.nodes, func(o *node) bool { return o.key.Public() == p.PublicKey })
	switch {
	case i == 2: // behind the NAT there is one address for each
	case j == 2:
		if c.whole || c.names.at() != loopback4 {
			return nil
		}
		p.Endpoint = c.endpoint(i, j, p.Endpoint.Host == natName)
	default:
		p.Endpoint = device.EndpointFrom(netip.AddrPortFrom(c.families[c.rand.IntN(len(c.families))], c.nodes[j].port))
	}
	return c.apply(ctx, n)
}

func (c *changer) keepalive(ctx context.Context, n *node) error {
	c.real(n).PersistentKeepalive = time.Duration(c.rand.IntN(30)) * time.Second
	return c.apply(ctx, n)
}

// presharedKey gives a pair a new preshared key, which the next handshake uses.
func (c *changer) presharedKey(ctx context.Context, n *node) error {
	key, err := device.NewPresharedKey()
	if err != nil {
		return err
	}
	p := c.real(n)
	other := c.nodes[slices.IndexFunc(c.nodes, func(o *node) bool { return o.key.Public() == p.PublicKey })]
	back := &other.config.Peers[slices.IndexFunc(other.config.Peers, func(q device.PeerConfig) bool { return q.PublicKey == n.key.Public() })]
	p.PresharedKey, back.PresharedKey = key, key
	return errors.Join(c.apply(ctx, n), c.apply(ctx, other))
}

// again applies what is there already. Whatever that changes is a fault.
func (c *changer) again(ctx context.Context, n *node) error {
	c.same++
	changed, err := n.Apply(ctx, n.config)
	if err == nil && changed > 0 && !c.whole {
		err = fmt.Errorf("%d changes of what is the same", changed)
	}
	return err
}

// moveName moves c's name to where nobody listens, and back. While the sessions live that
// is no difference.
func (c *changer) moveName(context.Context, *node) error {
	c.changed++
	if c.names.at() == loopback4 {
		c.names.move(nowhere)
	} else {
		c.names.move(loopback4)
	}
	return nil
}

func (c *changer) roam(context.Context, *node) error {
	c.changed++
	return c.nat.roam()
}

// bad applies a configuration that no device could obey. It must be refused whole.
func (c *changer) bad(ctx context.Context, n *node) error {
	c.refused++
	good := n.config
	bad := good
	bad.Peers = slices.Clone(good.Peers)
	switch c.rand.IntN(3) {
	case 0: // a prefix with two owners
		bad.Peers = append(bad.Peers, device.PeerConfig{PublicKey: device.PublicKey{1}, AllowedIPs: bad.Peers[0].AllowedIPs})
	case 1: // the node's own key as a peer
		bad.Peers = append(bad.Peers, device.PeerConfig{PublicKey: n.key.Public()})
	case 2: // a keepalive that no packet could carry, beside the loss of a real peer
		bad.Peers = bad.Peers[1:]
		bad.Peers[0].PersistentKeepalive = 100 * time.Hour
	}
	if _, err := n.Apply(ctx, bad); err == nil {
		return errors.New("it was accepted")
	}
	if c.whole {
		return nil
	}
	if changed, err := n.Apply(ctx, good); err != nil || changed > 0 {
		return errors.Join(fmt.Errorf("it left %d changes behind", changed), err)
	}
	return nil
}
