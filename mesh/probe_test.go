package mesh

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
)

// ether is UDP between the mesh addresses of a test, with a switch for each direction.
type ether struct {
	mu     sync.Mutex
	socket map[netip.AddrPort]*etherConn
	cut    map[[2]netip.Addr]bool
	sent   map[netip.Addr]int // by source
}

func newEther() *ether {
	return &ether{socket: make(map[netip.AddrPort]*etherConn), cut: make(map[[2]netip.Addr]bool), sent: make(map[netip.Addr]int)}
}

func (e *ether) listen(a netip.AddrPort) (net.PacketConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &etherConn{ether: e, addr: a, in: make(chan etherPacket, 100), closed: make(chan struct{})}
	e.socket[a] = c
	return c, nil
}

func (e *ether) setCut(from, to string, cut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cut[[2]netip.Addr{addr(from), addr(to)}] = cut
}

func (e *ether) count(from string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent[addr(from)]
}

type etherPacket struct {
	from netip.AddrPort
	b    []byte
}

// etherConn is one socket.
type etherConn struct {
	net.PacketConn // for what nobody calls
	ether          *ether
	addr           netip.AddrPort
	in             chan etherPacket
	closed         chan struct{}
	once           sync.Once
}

func (c *etherConn) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case p := <-c.in:
		return copy(b, p.b), net.UDPAddrFromAddrPort(p.from), nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

func (c *etherConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.ether.mu.Lock()
	defer c.ether.mu.Unlock()
	dst := to.(*net.UDPAddr).AddrPort()
	c.ether.sent[c.addr.Addr()]++
	peer := c.ether.socket[dst]
	if peer == nil || c.ether.cut[[2]netip.Addr{c.addr.Addr(), dst.Addr()}] {
		return len(b), nil
	}
	select {
	case peer.in <- etherPacket{c.addr, slices.Clone(b)}:
	default: // the queue is full, as may be
	}
	return len(b), nil
}

func (c *etherConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// stillDevice is a device whose state is what the test says.
type stillDevice struct {
	mu      sync.Mutex
	state   device.State
	renewed int
}

func (d *stillDevice) Apply(context.Context, device.Config) ([]device.Change, error) { return nil, nil }
func (d *stillDevice) Plan(device.Config) ([]device.Change, error)                   { return nil, nil }
func (d *stillDevice) State() (device.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state
	s.Peers = slices.Clone(s.Peers)
	return s, nil
}

func (d *stillDevice) Renew(netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewed++
	return nil
}

func (d *stillDevice) set(f func(p *device.PeerState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.state.Peers[0])
}

// pairOfProbers are a, which the test looks at, and b, its leader.
type pairOfProbers struct {
	net    *ether
	device *stillDevice // of a
	a      *prober
}

const addrA, addrB = "10.4.0.1", "10.4.0.2"

func runPair(t *testing.T, test func(p *pairOfProbers)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pairOfProbers{net: newEther(), device: &stillDevice{}}
		p.device.state.Peers = []device.PeerState{{PublicKey: key("b"), LastHandshake: time.Now(), Declared: endpoint("192.0.2.2:1")}}
		p.a = newProber(p.net.listen, p.device, func() {}, zerolog.Nop())
		b := newProber(p.net.listen, &stillDevice{}, func() {}, zerolog.Nop())
		p.a.set(planTo("b", addrA, addrB))
		b.set(planTo("a", addrB, addrA))
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for _, x := range []*prober{p.a, b} {
			work.Go(func() { _ = x.run(ctx) })
		}
		test(p)
		cancel()
		work.Wait()
	})
}

func planTo(name, own, to string) Plan {
	return Plan{
		Host:   HostPlan{Addresses: single([]netip.Addr{addr(own)})},
		Device: device.Config{Peers: []device.PeerConfig{{PublicKey: key(name), Endpoint: endpoint("192.0.2.2:1")}}},
		Probes: []Probe{{Name: name, Key: key(name), Address: addr(to), Tunnel: true, Carries: true}},
	}
}

func (p *pairOfProbers) path() Path { return p.a.findings().paths[key("b")] }

// after lets time pass and all that is due happen.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestAPathThatIsWellIsUpAndSeldomAsked(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		after(time.Second)
		if got := p.path().Verdict; got != Up {
			t.Fatalf("after a second the path is %s, want Up", got)
		}
		before := p.net.count(addrA)
		after(time.Minute)
		if asked := p.net.count(addrA) - before; asked > 2*13 { // requests, and answers to b's
			t.Errorf("%d packets in a minute, want no more than each 5 s", asked)
		}
	})
}

func TestADeadPathIsNamedWithinFifteenSeconds(t *testing.T) {
	for _, tt := range []struct {
		name      string
		handshake time.Duration // its age
		want      Verdict
	}{
		{"with a live session", time.Minute, NoReply},
		{"without one", time.Hour, HandshakeStale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runPair(t, func(p *pairOfProbers) {
				after(time.Second)
				p.device.set(func(s *device.PeerState) { s.LastHandshake = time.Now().Add(-tt.handshake) })
				p.net.setCut(addrA, addrB, true)
				after(15 * time.Second)
				if got := p.path().Verdict; got != tt.want {
					t.Errorf("after 15 s the path is %s, want %s", got, tt.want)
				}
				if p.device.renewed == 0 {
					t.Error("nothing was done about it")
				}
				p.net.setCut(addrA, addrB, false)
				p.device.set(func(s *device.PeerState) { s.LastHandshake = time.Now() }) // the device has asked all the time
				after(probeSlow + time.Second)
				if got := p.path(); got.Verdict != Up || len(got.Failed) > 0 {
					t.Errorf("once it carries packets again it is %+v, want Up", got)
				}
			})
		})
	}
}

// A device keeps a packet for a peer without a session, in 64 KiB each.
func TestThoseWithoutASessionAreSentNextToNothing(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		p.net.setCut(addrA, addrB, true)
		p.device.set(func(s *device.PeerState) { s.LastHandshake = time.Time{} })
		after(6 * time.Second)
		before := p.net.count(addrA)
		after(10 * time.Minute)
		if sent := p.net.count(addrA) - before; sent > 130 { // answers to b, and one for every two minutes
			t.Errorf("%d packets in ten minutes", sent)
		}
		if p.device.renewed < 20 {
			t.Errorf("asked for a session %d times in ten minutes", p.device.renewed)
		}
	})
}

func TestAPeerThatFallsSilentIsAskedAtOnce(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		p.device.set(func(s *device.PeerState) { s.TransmitBytes, s.ReceiveBytes = 1000, 1000 })
		after(6 * time.Second)
		p.a.mu.Lock()
		p.a.targets[key("b")].due = time.Now().Add(time.Hour) // as in a mesh of thousands
		p.a.mu.Unlock()
		p.net.setCut(addrB, addrA, true)
		p.device.set(func(s *device.PeerState) { s.TransmitBytes += 1000 })
		after(11 * time.Second)
		if got := p.path().Verdict; got != NoReply {
			t.Errorf("the path is %s, want NoReply", got)
		}
	})
}

func TestAnEndpointThatFailsIsToldToThePlanner(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		after(time.Second)
		p.net.setCut(addrA, addrB, true)
		after(15 * time.Second)
		if got := p.path().Failed; !slices.Contains(got, endpoint("192.0.2.2:1")) {
			t.Errorf("%v have failed, want the declared one", got)
		}
		first := p.failedAt()
		after(moveAgain + 2*probeSlow)
		if again := p.failedAt(); !again.After(first.Add(moveAgain / 2)) {
			t.Error("what has failed is not tried again, though nothing else is left")
		}
	})
}

func (p *pairOfProbers) failedAt() time.Time {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	return p.a.targets[key("b")].failedAt
}

// A session that comes up while the endpoint is about to be given up keeps its way.
func TestAnEndpointThatHasASessionIsNotGivenUp(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		p.device.set(func(s *device.PeerState) { s.LastHandshake = time.Time{} })
		p.net.setCut(addrA, addrB, true)
		after(5*time.Second + 100*time.Millisecond) // missed for the fifth time, and the device was just looked at
		p.net.setCut(addrA, addrB, false)
		p.device.set(func(s *device.PeerState) { s.LastHandshake = time.Now() })
		after(4 * time.Second)
		if got := p.path(); len(got.Failed) > 0 || got.Verdict != Up {
			t.Errorf("the path is %+v, want it up by the endpoint that it has", got)
		}
	})
}

func TestOnlyMembersAreAnswered(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		after(time.Second)
		stranger, err := p.net.listen(ap("10.4.0.9:4000"))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{echo{sequence: 1}.append(nil), []byte("SWpb"), nil, make([]byte, 2000)} {
			if _, err := stranger.WriteTo(b, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(addrA), ProbePort))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		select {
		case got := <-stranger.(*etherConn).in:
			t.Errorf("a stranger was answered %x", got.b)
		default:
		}
	})
}

func TestALeaderThatDoesNotAnswerIsToldWithDelays(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		told := func() bool { return slices.Contains(p.a.findings().unreachable, "b") }
		after(time.Second)
		p.net.setCut(addrA, addrB, true)
		after(8 * time.Second)
		if told() {
			t.Error("told after 8 s: the path may have lost a few packets alone")
		}
		after(12 * time.Second)
		if !told() {
			t.Error("not told after 20 s")
		}
		p.net.setCut(addrA, addrB, false)
		after(probeSlow + time.Second)
		if p.path().Verdict != Up || !told() {
			t.Errorf("the path is %s, told %v: want it up, and not yet pardoned", p.path().Verdict, told())
		}
		after(pardonAfter)
		if told() {
			t.Error("not taken back after the leader was well for long")
		}
	})
}

func TestALeaderThatLeadsNoLongerIsPardoned(t *testing.T) {
	runPair(t, func(p *pairOfProbers) {
		after(time.Second)
		p.net.setCut(addrA, addrB, true)
		after(30 * time.Second)
		p.a.set(Plan{Host: HostPlan{Addresses: single([]netip.Addr{addr(addrA)})}})
		after(pardonAfter / 2)
		if got := p.a.findings().unreachable; !slices.Contains(got, "b") {
			t.Error("pardoned at once")
		}
		after(pardonAfter)
		if got := p.a.findings().unreachable; len(got) > 0 {
			t.Errorf("%v are still told", got)
		}
	})
}

func FuzzEcho(f *testing.F) {
	f.Add(echo{sequence: 7, nonce: 9}.append(nil))
	f.Add(echo{answer: true, sequence: 7, nonce: 9, leads: 3}.append(nil))
	f.Add([]byte("SWpb"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, ok := parseEcho(b); ok {
			again, ok := parseEcho(e.append(nil))
			if !ok || again != e {
				t.Errorf("%x reads %+v, and that again %+v", b, e, again)
			}
		}
	})
}
