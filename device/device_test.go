package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/stillwire/stillwire/device/devicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a Device on the in-memory network, with one inner address.
type node struct {
	*Device
	key   PrivateKey
	tun   *devicetest.TUN
	addr  netip.Addr
	tally devicetest.Tally
	log   logBuffer

	mu      sync.Mutex
	changes []Change // as OnChange told them
}

// logBuffer keeps log lines. wireguard-go says there what UAPI operations reach it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// operations counts all UAPI operations.
func (n *node) operations() int { return n.log.count(" UAPI: ") + n.log.count("\"UAPI: ") }

func newNode(t *testing.T, h *devicetest.Host, addr string, key byte, edit ...func(*Options)) *node {
	t.Helper()
	n := &node{key: testKey(8 * key), tun: devicetest.NewTUN(1420), addr: netip.MustParseAddr(addr)}
	n.tun.Handle(n.tally.Add)
	o := Options{TUN: n.tun, Bind: h.Bind(), Log: zerolog.New(&n.log), OnChange: n.changed, Resolver: &fakeResolver{}}
	for _, f := range edit {
		f(&o)
	}
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	n.Device = d
	t.Cleanup(func() { d.Close() })
	return n
}

func (n *node) changed(c []Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, c...)
}

func (n *node) told() (lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.changes {
		lines = append(lines, fmt.Sprintf("%s: %s -> %s [%s]", c.Field, orNone(c.Old), orNone(c.New), c.Cause))
	}
	return lines
}

func (n *node) config(peers ...PeerConfig) Config {
	return Config{PrivateKey: n.key, ListenPort: 51820, Peers: peers}
}

// asPeer is n as others configure it.
func (n *node) asPeer(endpoint string, keepalive time.Duration) PeerConfig {
	p := PeerConfig{
		PublicKey:           n.key.Public(),
		PersistentKeepalive: keepalive,
		AllowedIPs:          []netip.Prefix{netip.PrefixFrom(n.addr, n.addr.BitLen())},
	}
	if endpoint != "" {
		e, err := ParseEndpoint(endpoint)
		if err != nil {
			panic(err)
		}
		p.Endpoint = e
	}
	return p
}

func (n *node) apply(t *testing.T, c Config) []Change {
	t.Helper()
	changes, err := n.Apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func (n *node) send(t *testing.T, to *node, seq uint64) {
	t.Helper()
	if err := n.tun.Inject(devicetest.Packet(n.addr, to.addr, seq, 200)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) peerState(t *testing.T, of *node) PeerState {
	t.Helper()
	s, err := n.State()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.Peers, func(p PeerState) bool { return p.PublicKey == of.key.Public() })
	if i < 0 {
		t.Fatalf("peer %s is not in %+v", of.key.Public(), s)
	}
	return s.Peers[i]
}

// pass lets the bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// exchange sends packets both ways, one every 10 ms, and fails for each that is lost.
func exchange(t *testing.T, a, b *node, first, last uint64) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		a.send(t, b, seq)
		b.send(t, a, seq)
		pass(10 * time.Millisecond)
	}
	pass(time.Second)
	mustHave(t, a, first, last)
	mustHave(t, b, first, last)
}

func mustHave(t *testing.T, n *node, first, last uint64) {
	t.Helper()
	if missing := n.tally.Missing(first, last); missing != nil {
		t.Errorf("%s missed %d of packets %d to %d: %v", n.addr, len(missing), first, last, missing)
	}
}

// fakeResolver answers from a table that tests change.
type fakeResolver struct {
	mu    sync.Mutex
	addrs map[string][]netip.Addr
	ttl   time.Duration
	err   error
	hang  bool
	asked int
}

func (r *fakeResolver) Resolve(ctx context.Context, host string) (Answer, error) {
	r.mu.Lock()
	r.asked++
	hang, err, a := r.hang, r.err, Answer{Addrs: r.addrs[host], TTL: r.ttl}
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}
	return a, err
}

func (r *fakeResolver) set(f func(*fakeResolver)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

func (r *fakeResolver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// bubble runs a test with a network in a bubble of its own time.
func bubble(t *testing.T, f func(*testing.T, *devicetest.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := devicetest.NewNetwork(devicetest.Options{Delay: 5 * time.Millisecond})
		t.Cleanup(n.Close)
		f(t, n)
	})
	runtime.GC()
}

func TestApplyingTheSameConfigAgainWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		config := a.config(b.asPeer("192.0.2.2:51820", 0))
		b.apply(t, b.config(a.asPeer("", 0)))
		if got := len(a.apply(t, config)); got != 3 {
			t.Errorf("the first Apply made %d changes, want key, port and peer", got)
		}
		if got := a.log.count("Updating listen port"); got != 1 {
			t.Errorf("the first Apply wrote the port %d times", got)
		}
		exchange(t, a, b, 1, 10)
		before := a.operations()
		if before == 0 {
			t.Fatal("the log shows no UAPI operation: the count below would prove nothing")
		}
		for range 300 {
			if changes := a.apply(t, config); len(changes) > 0 {
				t.Fatalf("changes of an unchanged world: %v", changes)
			}
		}
		if after := a.operations(); after != before {
			t.Errorf("%d UAPI operations for an unchanged world", after-before)
		}
		exchange(t, a, b, 11, 20)
	})
}

func TestBadConfigChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		good := a.config(b.asPeer("192.0.2.2:51820", 0))
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, good)
		exchange(t, a, b, 1, 5)
		before, want := a.operations(), a.model.state()

		clash := PeerConfig{PublicKey: testPeer(80), Name: "clash", AllowedIPs: prefixes("10.9.0.2/32")}
		bad := good
		bad.FwMark = 7
		bad.Peers = append(slices.Clone(good.Peers), clash)
		_, err := a.Apply(t.Context(), bad)
		var ce *ConfigError
		if !errors.As(err, &ce) || ce.Field != "AllowedIPs" {
			t.Errorf("error %v, want a ConfigError on AllowedIPs", err)
		}
		for _, word := range []string{"10.9.0.2/32", "clash", b.key.Public().String()[:8]} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("error %q does not name %s", err, word)
			}
		}
		if a.operations() != before {
			t.Error("a bad config reached the device")
		}
		if diff := cmp.Diff(want, a.model.state(), sameState()); diff != "" {
			t.Errorf("a bad config changed the model:\n%s", diff)
		}
		exchange(t, a, b, 6, 10)
	})
}

// What a NAT does to a port must never be taken for a difference.
func TestRoamedEndpointSurvivesReapplies(t *testing.T) {
	for _, tt := range []struct {
		name      string
		endpoint  string
		keepalive time.Duration
	}{
		{"declared, keepalive", "203.0.113.9:51820", 25 * time.Second},
		{"declared, no keepalive", "203.0.113.9:51820", 0},
		{"not declared, keepalive", "", 25 * time.Second},
		{"not declared, no keepalive", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *devicetest.Network) {
				nat := net.NAT(netip.MustParseAddr("203.0.113.9"), devicetest.NATOptions{Kind: devicetest.FullCone})
				hub, roamer := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, nat.Host("10.0.0.2"), "10.9.0.2", 2)
				config := hub.config(roamer.asPeer(tt.endpoint, tt.keepalive))
				hub.apply(t, config)
				roamer.apply(t, roamer.config(hub.asPeer("192.0.2.1:51820", 25*time.Second)))
				roamer.send(t, hub, 0)
				pass(time.Second)
				writes := hub.log.count("Updating endpoint")
				seq := uint64(1)
				for range 4 {
					nat.Rebind()
					roamer.send(t, hub, 100000+seq) // only its own packet can tell the hub
					pass(time.Second)
					for range 100 {
						if changes := hub.apply(t, config); len(changes) > 0 {
							t.Fatalf("a roamed endpoint is a difference: %v", changes)
						}
						exchange(t, hub, roamer, seq, seq)
						seq++
					}
				}
				if got := hub.log.count("Updating endpoint"); got != writes {
					t.Errorf("%d endpoint writes", got-writes)
				}
				if s := hub.peerState(t, roamer); tt.endpoint != "" && !s.Roamed() {
					t.Errorf("the peer has not roamed: %+v", s)
				}
			})
		})
	}
}

func TestSilentPeerIsTriedAtItsDeclarationAgain(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		host := net.Host("192.0.2.2")
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, host, "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0))) // both speaking at once is what WireGuard cannot bear
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		exchange(t, a, b, 1, 5)
		host.SetAddrs("192.0.2.77") // roams, and tells
		b.send(t, a, 6)
		pass(time.Second)
		if got := a.peerState(t, b).Endpoint; got != netip.MustParseAddrPort("192.0.2.77:51820") {
			t.Fatalf("live endpoint %s, want the roamed one", got)
		}
		host.SetAddrs("192.0.2.2") // goes home, and does not tell: it only answers
		quiet := net.Tap(func(d devicetest.Datagram) devicetest.Verdict {
			if d.From == host && d.Payload[0] != 2 {
				return devicetest.Drop
			}
			return devicetest.Pass
		})
		defer quiet()
		a.send(t, b, 7)
		pass(60 * time.Second)
		if got := a.peerState(t, b).Endpoint.Addr().String(); got != "192.0.2.77" {
			t.Errorf("a live session's endpoint was overwritten with %s", got)
		}
		pass(200 * time.Second) // now the session is dead
		a.send(t, b, 8)
		pass(8 * time.Second)
		mustHave(t, b, 8, 8)
		want := []string{"endpoint: 192.0.2.77:51820 -> 192.0.2.2:51820 [endpoint 192.0.2.2:51820: no handshake there]"}
		if diff := cmp.Diff(want, a.told()); diff != "" {
			t.Errorf("changes told (-want +got):\n%s", diff)
		}
	})
}

func TestChangedDeclarationMovesTheEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2", "198.51.100.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		exchange(t, a, b, 1, 5)
		changes := a.apply(t, a.config(b.asPeer("198.51.100.2:51820", 0)))
		want := []Change{{Peer: b.key.Public(), Field: "endpoint", Old: "192.0.2.2:51820", New: "198.51.100.2:51820"}}
		if diff := cmp.Diff(want, changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		a.send(t, b, 6)
		pass(time.Second)
		if got := a.peerState(t, b).Endpoint.Addr().String(); got != "198.51.100.2" {
			t.Errorf("packets go to %s", got)
		}
		exchange(t, a, b, 6, 10)
	})
}

func TestNameIsResolvedOffTheApplyPath(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		r := &fakeResolver{hang: true}
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.Resolver = r })
		b, c := newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2), newNode(t, net.Host("192.0.2.3"), "10.9.0.3", 3)
		b.apply(t, b.config(a.asPeer("", 0)))
		c.apply(t, c.config(a.asPeer("", 0)))
		start := time.Now()
		a.apply(t, a.config(b.asPeer("b.example:51820", 0), c.asPeer("192.0.2.3:51820", 0)))
		if d := time.Since(start); d > 0 {
			t.Errorf("Apply took %v with a resolver that hangs", d)
		}
		exchange(t, a, c, 1, 5) // the other peer does not wait
		a.send(t, b, 1)
		pass(30 * time.Second)
		if got := a.peerState(t, b).EndpointProblem; !strings.Contains(got, "b.example does not resolve") {
			t.Errorf("endpoint problem %q", got)
		}
		r.set(func(r *fakeResolver) {
			r.hang, r.addrs = false, map[string][]netip.Addr{"b.example": addrs("192.0.2.2")}
		})
		pass(maxRetry + lookupTimeout)
		exchange(t, a, b, 11, 15)
		if got := a.peerState(t, b).EndpointProblem; got != "" {
			t.Errorf("endpoint problem %q after the name resolves", got)
		}
	})
}

func TestNameThatMoves(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		r := &fakeResolver{ttl: 30 * time.Second, addrs: map[string][]netip.Addr{"b.example": addrs("192.0.2.2")}}
		host := net.Host("192.0.2.2")
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.Resolver = r })
		b := newNode(t, host, "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("b.example:51820", 0)))
		pass(time.Second)
		exchange(t, a, b, 1, 5)

		// The name moves while the session lives: no difference.
		r.set(func(r *fakeResolver) { r.addrs["b.example"] = addrs("198.51.100.2") })
		asked := r.count()
		pass(65 * time.Second)
		if r.count() != asked+2 {
			t.Errorf("asked %d times in 65 s for a record of 30 s", r.count()-asked)
		}
		exchange(t, a, b, 6, 10)
		if got := a.peerState(t, b).Endpoint.Addr().String(); got != "192.0.2.2" {
			t.Errorf("a live session was moved to %s", got)
		}

		// DNS fails, and lies: the last good answer stays.
		r.set(func(r *fakeResolver) { r.err = errors.New("server misbehaving") })
		pass(65 * time.Second)
		r.set(func(r *fakeResolver) { r.err, r.addrs["b.example"] = nil, addrs("0.0.0.0", "127.0.0.1", "224.0.0.1") })
		pass(65 * time.Second)
		if got := a.peerState(t, b).EndpointProblem; !strings.Contains(got, "no address that a peer could have") || !strings.Contains(got, "198.51.100.2") {
			t.Errorf("endpoint problem %q", got)
		}

		// The peer is gone from the old address: the first packet finds it at the new one.
		host.SetAddrs("198.51.100.2")
		pass(200 * time.Second)
		a.send(t, b, 11)
		pass(2 * time.Second)
		mustHave(t, b, 11, 11)
	})
}

func TestAllAddressesOfANameAreTried(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		r := &fakeResolver{addrs: map[string][]netip.Addr{"b.example": addrs("2001:db8::bad", "192.0.2.66", "192.0.2.2")}}
		a := newNode(t, net.Host("192.0.2.1", "2001:db8::1"), "10.9.0.1", 1, func(o *Options) { o.Resolver = r })
		b := newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("b.example:51820", 0)))
		a.send(t, b, 1)
		pass(8 * time.Second)
		mustHave(t, b, 1, 1)
		if got := a.peerState(t, b).Endpoint.String(); got != "192.0.2.2:51820" {
			t.Errorf("packets go to %s", got)
		}
	})
}

func TestUnreachableFamilyIsLeftAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := devicetest.NewNetwork(devicetest.Options{Unreachable: true})
		t.Cleanup(net.Close)
		r := &fakeResolver{addrs: map[string][]netip.Addr{"b.example": addrs("2001:db8::2", "192.0.2.2")}}
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.Resolver = r })
		b := newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("b.example:51820", 0)))
		a.send(t, b, 1)
		pass(100 * time.Millisecond)
		mustHave(t, b, 1, 1)
	})
	runtime.GC()
}

func TestRestartFindsRoamedPeersAndSpeaksFirst(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		dir := t.TempDir()
		withState := func(o *Options) { o.StateDir = dir }
		nat := net.NAT(netip.MustParseAddr("203.0.113.9"), devicetest.NATOptions{Kind: devicetest.FullCone})
		hubHost := net.Host("192.0.2.1")
		hub := newNode(t, hubHost, "10.9.0.1", 1, withState)
		roamer := newNode(t, nat.Host("10.0.0.2"), "10.9.0.2", 2)
		config := hub.config(roamer.asPeer("", 0))
		hub.apply(t, config)
		roamer.apply(t, roamer.config(hub.asPeer("192.0.2.1:51820", 0)))
		roamer.send(t, hub, 0)
		pass(3 * time.Second)
		live := hub.peerState(t, roamer).Endpoint
		if !live.IsValid() {
			t.Fatal("the hub never learnt where the roamer is")
		}
		hub.Close()

		again := newNode(t, hubHost, "10.9.0.1", 1, withState)
		again.apply(t, config)
		if got := again.peerState(t, roamer).Endpoint; got != live {
			t.Errorf("endpoint after the restart %v, want %v", got, live)
		}
		pass(50 * time.Millisecond) // a round trip is 10 ms: it spoke first
		roamer.send(t, again, 1)
		pass(50 * time.Millisecond)
		mustHave(t, again, 1, 1)
	})
}

func TestDamagedStateFileIsIgnoredLoudly(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		dir := t.TempDir()
		path := filepath.Join(dir, "wg0.endpoints.json")
		s := savedEndpoints{testPeer(16): {Live: netip.MustParseAddrPort("192.0.2.2:1")}}
		if err := s.save(path); err != nil {
			t.Fatal(err)
		}
		edit(t, path, "192.0.2.2", "192.0.2.3")
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.StateDir = dir })
		if len(a.saved) > 0 || a.log.count("checksum does not match") != 1 {
			t.Errorf("saved %v; log:\n%s", a.saved, a.log.b.String())
		}
	})
}

func TestReach(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		gone := newNode(t, net.Host("192.0.2.3"), "10.9.0.3", 3) // never configured: answers nobody
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0), gone.asPeer("192.0.2.3:51820", 0)))

		start := time.Now()
		if err := a.Reach(t.Context(), b.addr); err != nil || time.Since(start) > 100*time.Millisecond {
			t.Errorf("Reach of a live peer: %v after %v", err, time.Since(start))
		}
		if err := a.Reach(t.Context(), netip.MustParseAddr("10.1.1.1")); !errors.Is(err, ErrNoPeer) {
			t.Errorf("Reach of nobody's address: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		err := a.Reach(ctx, gone.addr)
		var he *HandshakeError
		if !errors.As(err, &he) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Reach of a dead peer: %v", err)
		}
		want := HandshakeError{Peer: gone.key.Public(), Endpoint: netip.MustParseAddrPort("192.0.2.3:51820"), Tries: 4, Err: context.DeadlineExceeded}
		if diff := cmp.Diff(want, *he, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
	})
}

func TestCloseFromAnywhereDuringEverything(t *testing.T) {
	net := devicetest.NewNetwork(devicetest.Options{})
	defer net.Close()
	for i := range 100 {
		a, b := newNode(t, net.Host(fmt.Sprintf("192.0.2.%d", i+1)), "10.9.0.1", 1), newNode(t, net.Host(fmt.Sprintf("198.51.100.%d", i+1)), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", time.Second)))
		config := a.config(b.asPeer(fmt.Sprintf("198.51.100.%d:51820", i+1), time.Second))
		a.apply(t, config)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for n := uint64(0); ; n++ {
					c := config
					c.FwMark = uint32(n % 2)
					if _, err := a.Apply(context.Background(), c); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("Apply during Close: %v", err)
						}
						return
					}
					if a.tun.Inject(devicetest.Packet(a.addr, b.addr, n, 100)) != nil {
						return
					}
				}
			})
		}
		wg.Go(func() { a.Reach(context.Background(), b.addr) })
		wg.Go(func() { a.State() })
		wg.Go(func() { a.Close() })
		wg.Go(func() { a.Close() })
		wg.Wait()
		b.Close()
		if _, err := a.State(); !errors.Is(err, ErrClosed) {
			t.Fatalf("State after Close: %v", err)
		}
	}
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%s does not hold %q: %s", path, old, b)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte(old), []byte(new)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Who waits for a peer that comes up a moment late does not wait out five seconds.
func TestReachCallsAgainSoon(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0)))
		pass(100 * time.Millisecond)
		b.apply(t, b.config(a.asPeer("", 0)))
		start := time.Now()
		if err := a.Reach(t.Context(), b.addr); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 1500*time.Millisecond {
			t.Errorf("reached after %v", d)
		}
		exchange(t, a, b, 1, 5)
	})
}
