package netstack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

const (
	// handshakePatience bounds the wait of a dial whose context has no deadline, both for
	// the handshake of WireGuard and for the one of TCP: WireGuard gives up after as long.
	handshakePatience = 90 * time.Second

	// attemptDelay is the head start of one address over the next (RFC 8305, section 8).
	attemptDelay = 250 * time.Millisecond
)

// Dial is DialContext without a context.
func (n *Net) Dial(network, address string) (net.Conn, error) {
	return n.DialContext(context.Background(), network, address)
}

// DialContext connects to address through the tunnel. The network is tcp, udp or ping, with
// a 4 or 6 behind it for one family only; the address is host:port, for ping the host
// alone. Names are resolved by Resolver, and of several addresses the first that answers is
// taken (RFC 8305).
//
// A TCP dial first waits for a session with the peer that owns the address, so that no SYN
// is lost. What is returned is a *TCPConn, *UDPConn or *PingConn. Errors are *net.OpError;
// device.ErrNoPeer, *device.HandshakeError, *net.DNSError, syscall.ECONNREFUSED and ctx's
// error can be found in them.
func (n *Net) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	kind, fam, err := parseNetwork(network)
	if err != nil {
		return nil, opError("dial", network, nil, nil, err)
	}
	host, port, err := splitAddress(ctx, kind, address)
	if err != nil {
		return nil, opError("dial", network, nil, nil, err)
	}
	addrs, err := n.resolver.LookupNetIP(ctx, "ip"+fam, host)
	if err != nil {
		return nil, opError("dial", network, nil, nil, err)
	}
	remotes := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		remotes[i] = netip.AddrPortFrom(addr, port)
	}
	switch kind {
	case "tcp":
		c, err := n.raceTCP(ctx, alternate(remotes))
		return connOrError(c, err)
	case "udp":
		c, err := firstOf(remotes, func(a netip.AddrPort) (*UDPConn, error) { return n.DialUDPAddrPort(netip.AddrPort{}, a) })
		return connOrError(c, err)
	default:
		c, err := firstOf(remotes, func(a netip.AddrPort) (*PingConn, error) { return n.DialPingAddr(netip.Addr{}, a.Addr()) })
		return connOrError(c, err)
	}
}

// connOrError keeps a nil pointer from becoming a non-nil net.Conn.
func connOrError[C net.Conn](c C, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// firstOf returns the first success, or the first error.
func firstOf[C any](remotes []netip.AddrPort, dial func(netip.AddrPort) (C, error)) (c C, first error) {
	for _, remote := range remotes {
		c, err := dial(remote)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return c, first
}

// raceTCP tries the addresses in order, giving each a head start, and returns the first
// connection. When all fail it is the first address's error that says most.
func (n *Net) raceTCP(ctx context.Context, remotes []netip.AddrPort) (*TCPConn, error) {
	if len(remotes) == 1 {
		return n.DialContextTCPAddrPort(ctx, remotes[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan attempt, len(remotes))
	started, ended := 0, 0
	defer func() { cancel(); reap(results, started-ended) }()

	errs := make([]error, len(remotes))
	next := time.NewTimer(0)
	defer next.Stop()
	for ended < len(remotes) {
		select {
		case <-next.C:
			if started < len(remotes) {
				go n.attempt(ctx, started, remotes[started], results)
				started++
				next.Reset(attemptDelay)
			}
		case r := <-results:
			if ended++; r.err == nil {
				return r.conn, nil
			}
			errs[r.index] = r.err
			next.Reset(0)
		}
	}
	return nil, errs[0]
}

type attempt struct {
	index int
	conn  *TCPConn
	err   error
}

func (n *Net) attempt(ctx context.Context, index int, remote netip.AddrPort, results chan<- attempt) {
	c, err := n.DialContextTCPAddrPort(ctx, remote)
	results <- attempt{index, c, err}
}

// reap waits for the attempts that lost, whose context has ended.
func reap(results <-chan attempt, running int) {
	for range running {
		if r := <-results; r.err == nil {
			r.conn.Close()
		}
	}
}

// alternate orders addresses so that families take turns, beginning with the first one's
// (RFC 8305, section 4).
func alternate(in []netip.AddrPort) []netip.AddrPort {
	var first, second []netip.AddrPort
	for _, a := range in {
		if a.Addr().Is4() == in[0].Addr().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	out := make([]netip.AddrPort, 0, len(in))
	for i := range max(len(first), len(second)) {
		out = append(out, first[min(i, len(first)):min(i+1, len(first))]...)
		out = append(out, second[min(i, len(second)):min(i+1, len(second))]...)
	}
	return out
}

// dialTCP waits for the session and then for the connection.
//
// While nothing answers, it asks for a new session, though the one there is looks well: a
// far side that has restarted does not know the old one, and by itself WireGuard finds out
// after 15 s. The device sees to it that this is no flood.
func (n *Net) dialTCP(ctx context.Context, remote netip.AddrPort) (*TCPConn, error) {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	remote = unmap(remote)
	c, err := n.reachTCP(ctx, remote)
	if err != nil {
		return nil, opError("dial", "tcp", nil, tcpAddr(remote), err)
	}
	return c, nil
}

func (n *Net) reachTCP(ctx context.Context, remote netip.AddrPort) (*TCPConn, error) {
	if err := n.stack.checkRemote(remote); err != nil {
		return nil, err
	}
	if err := n.reach(ctx, remote.Addr()); err != nil {
		return nil, err
	}
	c, err := n.stack.dialTCP(ctx, netip.AddrPort{}, remote, func() {
		if n.isRemote(remote.Addr()) {
			n.device.Renew(remote.Addr())
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = contextError(ctx, "no answer, though there is a session with the peer: the host behind it is off, or a firewall drops this")
	}
	return c, err
}

// withPatience gives a context without a deadline one.
func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, handshakePatience)
}

// reach waits for a session with the peer that owns addr, if there is to be one.
func (n *Net) reach(ctx context.Context, addr netip.Addr) error {
	if !n.isRemote(addr) {
		return nil
	}
	return n.explain(n.device.Reach(ctx, addr))
}

// known is reach for datagrams, which nobody answers: an address that no peer owns is an
// error at once, and a handshake is started, but nothing waits for it. WireGuard keeps the
// first packets until there is a session.
func (n *Net) known(addr netip.Addr) error {
	if !n.isRemote(addr) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := n.device.Reach(ctx, addr)
	if _, waiting := errors.AsType[*device.HandshakeError](err); waiting {
		return nil
	}
	return n.explain(err)
}

func (n *Net) isRemote(addr netip.Addr) bool { return !n.stack.addresses.contains(addr.Unmap()) }

// explain makes a timeout of a wait that ended with its context, so that net.Error's
// Timeout holds, and says "closed" as the net package does.
func (n *Net) explain(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &timeoutError{err.Error(), err}
	case errors.Is(err, device.ErrClosed):
		return net.ErrClosed
	}
	return err
}

// dialServer is how the resolver gets to a DNS server.
func (n *Net) dialServer(ctx context.Context, network string, server netip.AddrPort) (net.Conn, error) {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	if network == "tcp" {
		c, err := n.dialTCP(ctx, server)
		return connOrError(c, err)
	}
	if err := n.reach(ctx, server.Addr()); err != nil {
		return nil, opError("dial", "udp", nil, udpAddr(server), err)
	}
	c, err := n.stack.DialUDP(netip.AddrPort{}, server)
	return connOrError(c, err)
}

// parseNetwork splits "tcp4" into "tcp" and "4".
func parseNetwork(network string) (kind, fam string, err error) {
	kind = strings.TrimRight(network, "46")
	fam = network[len(kind):]
	if !slices.Contains([]string{"tcp", "udp", "ping"}, kind) || len(fam) > 1 {
		return "", "", net.UnknownNetworkError(network)
	}
	return kind, fam, nil
}

// splitAddress reads host:port, or the host alone for a ping.
func splitAddress(ctx context.Context, kind, address string) (host string, port uint16, err error) {
	if kind == "ping" {
		return strings.Trim(address, "[]"), 0, nil
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	p, err := new(net.Resolver).LookupPort(ctx, kind, service)
	return host, uint16(p), err
}
