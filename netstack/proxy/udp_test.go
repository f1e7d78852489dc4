package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// maxUDP4 is the largest payload over IPv4.
const maxUDP4 = 65507

// udpEcho answers each datagram with itself.
func udpEcho(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	pc := must[net.PacketConn](t)(net.ListenPacket("udp", address))
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			n, from, err := pc.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			pc.WriteTo(buf[:n], from)
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return addrPortOf(pc.LocalAddr())
}

// udpClient is a client's socket, towards an association or a forward.
type udpClient struct {
	*net.UDPConn
}

func dialUDP(t testing.TB, to netip.AddrPort) *udpClient {
	t.Helper()
	c := must[*net.UDPConn](t)(net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)))
	t.Cleanup(func() { c.Close() })
	c.SetReadBuffer(4 << 20)
	return &udpClient{c}
}

// want waits for one datagram. Each has the whole patience: a hundred of them may take longer
// on a busy machine.
func (c *udpClient) want(t testing.TB, want []byte) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf[:n], want) {
		t.Fatalf("got %d bytes %.40q, want %d bytes %.40q", n, buf[:n], len(want), want)
	}
}

// associate opens an association: the TCP connection that holds it, and its socket.
func associate(t testing.TB, proxy string) (control net.Conn, c *udpClient) {
	t.Helper()
	control = dialProxy(t, proxy)
	_, bound, err := socksRequest(control, "", "", commandAssociate, "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	return control, dialUDP(t, bound)
}

func datagram(to string, payload []byte) []byte {
	return append(append([]byte{0, 0, 0}, wireAddress(to)...), payload...)
}

func socksUDP(t testing.TB, o Options) (s *Server, address string) {
	t.Helper()
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer)
	}
	if o.Packets == nil {
		o.Packets = &host{}
	}
	s = must[*Server](t)(NewSOCKS5(o))
	return s, serve(t, s)
}

func TestAssociateCarriesBothFamiliesAndNames(t *testing.T) {
	echo4, echo6 := udpEcho(t, "127.0.0.1:0"), udpEcho(t, "[::1]:0")
	names := dialerFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "udp" || address != "echo.example:7" {
			return nil, fmt.Errorf("asked for %s %s", network, address)
		}
		return new(net.Dialer).DialContext(ctx, "udp", echo4.String())
	})
	s, address := socksUDP(t, Options{Dialer: names})
	control, c := associate(t, address)
	for _, to := range []struct{ asked, answers string }{
		{echo4.String(), echo4.String()},
		{echo6.String(), echo6.String()},
		{"echo.example:7", echo4.String()},
		{"echo.example:7", echo4.String()},
	} {
		c.Write(datagram(to.asked, []byte("hello")))
		c.want(t, datagram(to.answers, []byte("hello")))
	}
	control.Close()
	wantBooks(t, s, Counters{Accepted: 1, Opened: 2, Sent: 20, Received: 20, DatagramsSent: 4, DatagramsReceived: 4})
}

func TestAssociateShowsOneAddressToAllTargetsAndHearsAll(t *testing.T) {
	a := must[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
	defer a.Close()
	b := must[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
	defer b.Close()
	_, address := socksUDP(t, Options{})
	_, c := associate(t, address)
	buf := make([]byte, 10)
	c.Write(datagram(a.LocalAddr().String(), []byte("x")))
	_, seenByA, err := a.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	// b, of whom the client has never heard, reaches it at the address that a saw.
	b.WriteTo([]byte("knock"), seenByA)
	c.want(t, datagram(b.LocalAddr().String(), []byte("knock")))
}

func TestAssociateKeepsOrderAndLargeDatagrams(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	_, address := socksUDP(t, Options{})
	_, c := associate(t, address)
	const header = 10
	wantInOrder(t, c, maxUDP4-header, func(b []byte) []byte { return datagram(echo.String(), b) })
}

// wantInOrder sends datagrams of many sizes, a window at a time, and wants them back as they
// were sent.
func wantInOrder(t testing.TB, c *udpClient, largest int, wrap func([]byte) []byte) {
	t.Helper()
	for round := range 30 {
		var sent [][]byte
		for i := range 10 {
			size := []int{0, 1, 100, 1400, 1500, 4096, 9000}[(round+i)%7]
			if i == 9 {
				size = largest
			}
			b := wrap(noise(uint64(round*100+i), size))
			if _, err := c.Write(b); err != nil {
				t.Fatalf("send %d bytes: %v", len(b), err)
			}
			sent = append(sent, b)
		}
		for _, b := range sent {
			c.want(t, b)
		}
	}
}

func TestAssociateDropsWhatIsNotForIt(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	s, address := socksUDP(t, Options{})
	_, c := associate(t, address)
	c.Write(datagram(echo.String(), []byte("first")))
	c.want(t, datagram(echo.String(), []byte("first")))

	stranger := dialUDP(t, addrPortOf(c.RemoteAddr()))
	stranger.Write(datagram(echo.String(), []byte("mine")))
	fragment := datagram(echo.String(), []byte("part"))
	fragment[2] = 1
	c.Write(fragment)
	c.Write(nil)
	c.Write([]byte("\x00\x00\x00\x01\x7f"))
	c.Write([]byte("\x00\x00\x00\x07abcdefgh"))
	c.Write([]byte("\x01\x00\x00\x01\x7f\x00\x00\x01\x00\x50"))
	c.Write(datagram("127.0.0.1:0", []byte("no port")))
	c.Write(datagram("a b:1", []byte("no name")))

	want := map[Reason]uint64{ReasonForeign: 1, ReasonFragment: 1, ReasonProtocol: 3, ReasonAddressType: 1, ReasonUnsendable: 1, ReasonName: 1}
	eventually(t, "all are dropped", func() bool { return cmp.Equal(s.Counters().Dropped, want) })
	c.Write(datagram(echo.String(), []byte("last")))
	c.want(t, datagram(echo.String(), []byte("last")))
}

func TestAssociateBelievesAClientThatSaysItsPort(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	s, address := socksUDP(t, Options{})
	control := dialProxy(t, address)
	own := must[*net.UDPConn](t)(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer own.Close()
	own.SetDeadline(time.Now().Add(patience))
	_, bound, err := socksRequest(control, "", "", commandAssociate, own.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	dialUDP(t, bound).Write(datagram(echo.String(), []byte("first, but a stranger")))
	eventually(t, "stranger is dropped", func() bool { return s.Counters().Dropped[ReasonForeign] == 1 })
	own.WriteToUDPAddrPort(datagram(echo.String(), []byte("mine")), bound)
	buf := make([]byte, 100)
	if n, _, err := own.ReadFromUDPAddrPort(buf); err != nil || !bytes.Equal(buf[:n], datagram(echo.String(), []byte("mine"))) {
		t.Errorf("got %q and %v", buf[:n], err)
	}
}

func TestAssociateEndsWithItsConnection(t *testing.T) {
	for name, end := range map[string]func(net.Conn){"close": func(c net.Conn) { c.Close() }, "reset": Abort} {
		t.Run(name, func(t *testing.T) {
			echo := udpEcho(t, "127.0.0.1:0")
			s, address := socksUDP(t, Options{})
			control, c := associate(t, address)
			c.Write(datagram(echo.String(), []byte("x")))
			c.want(t, datagram(echo.String(), []byte("x")))
			end(control)
			eventually(t, "association ends", func() bool { return s.Live() == 0 })
			// Nobody is there any more: the system says so.
			eventually(t, "socket is closed", func() bool { _, err := c.Write([]byte("x")); return err != nil })
		})
	}
}

func TestAssociateIdle(t *testing.T) {
	s, address := socksUDP(t, Options{IdleTimeout: 50 * time.Millisecond})
	control, _ := associate(t, address)
	wantReset(t, "client", control)
	wantBooks(t, s, Counters{Accepted: 1, Cut: map[Reason]uint64{ReasonIdle: 1}})
}

func TestAssociateNameThatIsSlowHoldsUpNobodyAndKeepsItsOrder(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	asked, ready := make(chan struct{}), make(chan struct{})
	s, address := socksUDP(t, Options{Dialer: dialerFunc(func(ctx context.Context, _, address string) (net.Conn, error) {
		switch address {
		case "slow.example:7":
			close(asked)
			<-ready
			return new(net.Dialer).DialContext(ctx, "udp", echo.String())
		default:
			return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
		}
	})})
	_, c := associate(t, address)
	for i := range maxNameWaiting {
		c.Write(datagram("slow.example:7", binary.BigEndian.AppendUint16(nil, uint16(i))))
	}
	<-asked
	c.Write(datagram(echo.String(), []byte("meanwhile")))
	c.want(t, datagram(echo.String(), []byte("meanwhile")))
	c.Write(datagram("slow.example:7", []byte("one too many")))
	c.Write(datagram("none.example:7", []byte("x")))
	want := map[Reason]uint64{ReasonQueueFull: 1, ReasonName: 1}
	eventually(t, "two are dropped", func() bool { return cmp.Equal(s.Counters().Dropped, want) })
	close(ready)
	for i := range maxNameWaiting {
		c.want(t, datagram(echo.String(), binary.BigEndian.AppendUint16(nil, uint16(i))))
	}
}

func TestAssociateForgetsTheNameOfLongestAgo(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	var mu sync.Mutex
	asked := make(map[string]int)
	_, address := socksUDP(t, Options{Dialer: dialerFunc(func(ctx context.Context, _, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[address]++
		return new(net.Dialer).DialContext(ctx, "udp", echo.String())
	})})
	_, c := associate(t, address)
	for i := range maxNames + 1 {
		c.Write(datagram(fmt.Sprintf("n%d.example:7", i), []byte("x")))
		c.want(t, datagram(echo.String(), []byte("x")))
	}
	for _, name := range []string{"n256.example:7", "n0.example:7"} {
		c.Write(datagram(name, []byte("x")))
		c.want(t, datagram(echo.String(), []byte("x")))
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["n0.example:7"] != 2 || asked["n256.example:7"] != 1 {
		t.Errorf("n0 was asked for %d times, n256 %d times, want 2 and 1", asked["n0.example:7"], asked["n256.example:7"])
	}
}

func TestAssociateToAStack(t *testing.T) {
	n := newStackNetwork(t).(*stackNetwork)
	echo := n.echoUDP(t)
	s, address := socksUDP(t, Options{Dialer: n, Packets: n})
	_, c := associate(t, address)
	for i := range 100 {
		b := datagram(echo, noise(uint64(i), i*20))
		c.Write(b)
		c.want(t, b)
	}
	eventually(t, "100 datagrams are counted each way", func() bool {
		n := s.Counters()
		return n.DatagramsSent == 100 && n.DatagramsReceived == 100
	})
}

func TestShutdownDrainsAssociations(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	s, address := socksUDP(t, Options{})
	control, c := associate(t, address)
	result := make(chan error)
	go func() { result <- s.Shutdown(deadline(t)) }()
	<-s.closing.Done()
	c.Write(datagram(echo.String(), []byte("x")))
	c.want(t, datagram(echo.String(), []byte("x")))
	control.Close()
	if err := <-result; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// serveUDP runs a forward on loopback.
func serveUDP(t testing.TB, u *UDPForward, listen string) netip.AddrPort {
	t.Helper()
	pc := must[net.PacketConn](t)(net.ListenPacket("udp", listen))
	pc.(*net.UDPConn).SetReadBuffer(4 << 20)
	newSourceConn(pc) // sooner than the first datagram
	done := make(chan error, 1)
	go func() { done <- u.Serve(context.Background(), pc) }()
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		u.Shutdown(gone)
		if err := <-done; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve returned %v, want %v", err, ErrServerClosed)
		}
		if n := u.waiting.Load(); n != 0 {
			t.Errorf("%d bytes are said to wait after the end", n)
		}
	})
	return addrPortOf(pc.LocalAddr())
}

func udpForward(t testing.TB, target netip.AddrPort, o Options) (*UDPForward, netip.AddrPort) {
	t.Helper()
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer)
	}
	u := must[*UDPForward](t)(NewUDPForward(target.String(), o))
	return u, serveUDP(t, u, "127.0.0.1:0")
}

func TestUDPForwardKeepsOrderAndLargeDatagrams(t *testing.T) {
	_, address := udpForward(t, udpEcho(t, "127.0.0.1:0"), Options{})
	wantInOrder(t, dialUDP(t, address), maxUDP4, func(b []byte) []byte { return b })
}

func TestUDPForwardKeepsClientsApart(t *testing.T) {
	u, address := udpForward(t, udpEcho(t, "127.0.0.1:0"), Options{})
	clients := make([]*udpClient, 50)
	for i := range clients {
		clients[i] = dialUDP(t, address)
		fmt.Fprintf(clients[i], "client %d", i)
	}
	for i, c := range clients {
		c.want(t, fmt.Appendf(nil, "client %d", i))
	}
	eventually(t, "50 of each are counted", func() bool {
		n := u.Counters()
		return n.Accepted == 50 && n.Live == 50 && n.Opened == 50 && n.DatagramsSent == 50 && n.DatagramsReceived == 50
	})
}

func TestUDPForwardMappingEndsWhenIdle(t *testing.T) {
	u, address := udpForward(t, udpEcho(t, "127.0.0.1:0"), Options{UDPTimeout: 50 * time.Millisecond})
	c := dialUDP(t, address)
	for range 2 {
		c.Write([]byte("x"))
		c.want(t, []byte("x"))
		eventually(t, "mapping ends", func() bool { return u.Live() == 0 })
	}
	if n := u.Counters(); n.Accepted != 2 {
		t.Errorf("%d mappings, want 2", n.Accepted)
	}
}

func TestUDPForwardFloodShedsItselfAndNotWhoIsAnswered(t *testing.T) {
	target := must[*net.UDPConn](t)(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer target.Close()
	target.SetDeadline(time.Now().Add(patience))
	u, address := udpForward(t, addrPortOf(target.LocalAddr()), Options{MaxMappings: 10})
	answered := dialUDP(t, address)
	answered.Write([]byte("hello"))
	buf := make([]byte, 100)
	_, from, err := target.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	target.WriteToUDPAddrPort([]byte("hello"), from)
	answered.want(t, []byte("hello"))
	for range 100 {
		dialUDP(t, address).Write([]byte("flood"))
	}
	eventually(t, "flood is through", func() bool { return u.Counters().Accepted == 101 })
	target.WriteToUDPAddrPort([]byte("still there"), from)
	answered.want(t, []byte("still there"))
	if n := u.Counters(); n.Live != 10 || n.Cut[ReasonLimit] != 91 {
		t.Errorf("%d mappings live, %v cut, want 10 and 91", n.Live, n.Cut)
	}
}

func TestUDPForwardNoticesThatNobodyListensAndThatSomebodyDoesAgain(t *testing.T) {
	gone := udpEcho(t, "127.0.0.1:0")
	pc := must[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
	address := addrPortOf(pc.LocalAddr())
	pc.Close()
	u, forward := udpForward(t, address, Options{})
	c := dialUDP(t, forward)
	c.Write([]byte("anybody?"))
	eventually(t, "refusal is noticed", func() bool { return u.Counters().Dropped[ReasonRefused] >= 1 })
	if gone == address {
		t.Fatal("port is taken")
	}
	udpEcho(t, address.String())
	c.Write([]byte("now?"))
	c.want(t, []byte("now?"))
	if n := u.Counters(); n.Accepted != 1 {
		t.Errorf("%d mappings, want the first one kept", n.Accepted)
	}
}

func TestUDPForwardTargetThatCannotBeReached(t *testing.T) {
	u := must[*UDPForward](t)(NewUDPForward("none.example:53", Options{Dialer: dialerFunc(func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "none.example", IsNotFound: true}
	})}))
	dialUDP(t, serveUDP(t, u, "127.0.0.1:0")).Write([]byte("x"))
	eventually(t, "mapping ends", func() bool {
		n := u.Counters()
		return n.Live == 0 && n.Refused[ReasonName] == 1 && n.Dropped[ReasonName] == 1
	})
}

func TestUDPForwardSlowDialKeepsOrderAndHoldsUpNobody(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	asked, ready := make(chan struct{}), make(chan struct{})
	var first sync.Once
	u := must[*UDPForward](t)(NewUDPForward("echo.example:7", Options{Dialer: dialerFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
		slow := false
		first.Do(func() { slow = true })
		if slow {
			close(asked)
			<-ready
		}
		return new(net.Dialer).DialContext(ctx, "udp", echo.String())
	})}))
	address := serveUDP(t, u, "127.0.0.1:0")
	c := dialUDP(t, address)
	for i := range maxMappingWaiting + 1 {
		c.Write(binary.BigEndian.AppendUint16(nil, uint16(i)))
	}
	<-asked
	other := dialUDP(t, address)
	other.Write([]byte("meanwhile"))
	other.want(t, []byte("meanwhile"))
	eventually(t, "one too many is dropped", func() bool { return u.Counters().Dropped[ReasonQueueFull] == 1 })
	close(ready)
	for i := range maxMappingWaiting {
		c.want(t, binary.BigEndian.AppendUint16(nil, uint16(i)))
	}
}

func TestUDPForwardAnswersFromTheAddressThatWasAsked(t *testing.T) {
	echo := udpEcho(t, "127.0.0.1:0")
	for _, c := range []struct{ listen, asked string }{
		{"0.0.0.0:0", "127.0.0.2"},
		{"[::]:0", "127.0.0.3"},
		{"[::]:0", "::1"},
	} {
		u := must[*UDPForward](t)(NewUDPForward(echo.String(), Options{Dialer: new(net.Dialer)}))
		address := serveUDP(t, u, c.listen)
		// A connected socket takes answers from the asked address only.
		client := dialUDP(t, netip.AddrPortFrom(netip.MustParseAddr(c.asked), address.Port()))
		client.Write([]byte("who are you?"))
		client.want(t, []byte("who are you?"))
	}
}

func TestUDPForwardUpdateChangesOnlyNewMappings(t *testing.T) {
	one := must[*net.UDPConn](t)(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer one.Close()
	u, address := udpForward(t, udpEcho(t, "127.0.0.1:0"), Options{})
	old := dialUDP(t, address)
	old.Write([]byte("x"))
	old.want(t, []byte("x"))
	u.Update(Options{Dialer: dialerFunc(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, one.LocalAddr().String())
	})})
	dialUDP(t, address).Write([]byte("new"))
	buf := make([]byte, 10)
	one.SetDeadline(time.Now().Add(patience))
	if n, _, err := one.ReadFrom(buf); err != nil || string(buf[:n]) != "new" {
		t.Errorf("new dialer's target got %q and %v", buf[:n], err)
	}
	old.Write([]byte("y"))
	old.want(t, []byte("y"))
}

func TestUDPForwardShutdownDrains(t *testing.T) {
	u, address := udpForward(t, udpEcho(t, "127.0.0.1:0"), Options{UDPTimeout: 300 * time.Millisecond})
	c := dialUDP(t, address)
	c.Write([]byte("x"))
	c.want(t, []byte("x"))
	result := make(chan error)
	go func() { result <- u.Shutdown(deadline(t)) }()
	<-u.closing.Done()
	dialUDP(t, address).Write([]byte("late"))
	c.Write([]byte("y"))
	c.want(t, []byte("y"))
	eventually(t, "late client is dropped", func() bool { return u.Counters().Dropped[ReasonShutdown] == 1 })
	if err := <-result; err != nil {
		t.Errorf("Shutdown: %v, want nil when every mapping ended by itself", err)
	}
	if n := u.Counters(); n.Accepted != 1 || len(n.Cut) != 0 {
		t.Errorf("%d mappings, %v cut, want 1 and none", n.Accepted, n.Cut)
	}
}

func TestUDPForwardEndsWithItsContext(t *testing.T) {
	for _, dialled := range []bool{false, true} {
		echo := udpEcho(t, "127.0.0.1:0")
		var d Dialer = dialerFunc(hang)
		if dialled {
			d = new(net.Dialer)
		}
		u := must[*UDPForward](t)(NewUDPForward(echo.String(), Options{Dialer: d}))
		pc := must[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
		why := errors.New("the process ends")
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error)
		go func() { done <- u.Serve(ctx, pc) }()
		c := dialUDP(t, addrPortOf(pc.LocalAddr()))
		c.Write([]byte("x"))
		if dialled {
			c.want(t, []byte("x"))
		}
		eventually(t, "mapping begins", func() bool { return u.Live() == 1 })
		cancel(why)
		if err := <-done; !errors.Is(err, why) || u.Live() != 0 {
			t.Errorf("Serve returned %v, want %v; %d mappings live", err, why, u.Live())
		}
	}
}

func TestUDPForwardToAStack(t *testing.T) {
	n := newStackNetwork(t).(*stackNetwork)
	u := must[*UDPForward](t)(NewUDPForward(n.echoUDP(t), Options{Dialer: n}))
	c := dialUDP(t, serveUDP(t, u, "127.0.0.1:0"))
	for i := range 100 {
		b := noise(uint64(i), i*20)
		c.Write(b)
		c.want(t, b)
	}
}

func TestUDPSocketOfAnotherMake(t *testing.T) {
	// A net.PacketConn that has nothing but its interface is served as well.
	echo := udpEcho(t, "127.0.0.1:0")
	u := must[*UDPForward](t)(NewUDPForward(echo.String(), Options{Dialer: new(net.Dialer)}))
	pc := must[net.PacketConn](t)(net.ListenPacket("udp", "127.0.0.1:0"))
	done := make(chan error)
	go func() { done <- u.Serve(context.Background(), struct{ net.PacketConn }{pc}) }()
	c := dialUDP(t, addrPortOf(pc.LocalAddr()))
	c.Write([]byte("x"))
	c.want(t, []byte("x"))
	pc.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v, want %v", err, net.ErrClosed)
	}
}

func TestAssociateAnswerThatHasNoRoomForItsHeader(t *testing.T) {
	target := must[*net.UDPConn](t)(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer target.Close()
	target.SetDeadline(time.Now().Add(patience))
	s, address := socksUDP(t, Options{})
	_, c := associate(t, address)
	c.Write(datagram(target.LocalAddr().String(), []byte("x")))
	_, from, err := target.ReadFromUDPAddrPort(make([]byte, 1))
	if err != nil {
		t.Fatal(err)
	}
	target.WriteToUDPAddrPort(make([]byte, maxUDP4), from)
	eventually(t, "it is dropped", func() bool { return s.Counters().Dropped[ReasonTooLarge] == 1 })
	target.WriteToUDPAddrPort([]byte("y"), from)
	c.want(t, datagram(target.LocalAddr().String(), []byte("y")))
}

func TestDatagramsThatPolicyForbids(t *testing.T) {
	s, address := socksUDP(t, Options{Packets: forbidding{}})
	_, c := associate(t, address)
	c.Write(datagram("169.254.169.254:80", []byte("x")))
	eventually(t, "it is dropped", func() bool { return s.Counters().Dropped[ReasonPolicy] == 1 })
}

// forbidding opens sockets that send nothing.
type forbidding struct{ net.ListenConfig }

func (f forbidding) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	pc, err := f.ListenConfig.ListenPacket(ctx, network, address)
	return forbiddingConn{pc}, err
}

type forbiddingConn struct{ net.PacketConn }

func (forbiddingConn) WriteTo([]byte, net.Addr) (int, error) { return 0, ErrPolicy }
