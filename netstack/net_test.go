package netstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
)

func TestNetConversations(t *testing.T) {
	a, b := peered(t)
	for _, addr := range []netip.Addr{addrB4, addrB6} {
		halfCloseTalk(t, netTalker{a.Net}, netTalker{b.Net}, addr)
		bulkTalk(t, netTalker{a.Net}, netTalker{b.Net}, addr, 4, streamBulk)
		datagramTalk(t, netTalker{a.Net}, netTalker{b.Net}, addr)
		if rtt, err := a.Ping(testContext(t), addr); err != nil || rtt <= 0 {
			t.Errorf("ping %s: %v, %v", addr, rtt, err)
		}
	}
}

// netTalker speaks through the names that net's users know.
type netTalker struct{ n *Net }

func (o netTalker) dialTCP(ctx context.Context, a netip.AddrPort) (halfCloser, error) {
	c, err := o.n.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return nil, err
	}
	return c.(halfCloser), nil
}
func (o netTalker) listenTCP(a netip.AddrPort) (net.Listener, error) {
	return o.n.Listen("tcp", a.String())
}
func (o netTalker) dialUDP(a netip.AddrPort) (net.Conn, error) { return o.n.Dial("udp", a.String()) }
func (o netTalker) listenUDP(a netip.AddrPort) (net.PacketConn, error) {
	return o.n.ListenPacket("udp", a.String())
}

// The far side knows us only after the dial has begun: the first handshake message may be
// lost, the SYN must not be.
func TestFirstDialWaitsForTheHandshake(t *testing.T) {
	t.Parallel() // when the first handshake message is lost the next one comes after 5 s
	a := openNode(t, Options{Name: "a", Addresses: prefixes(addrA4)})
	b := openNode(t, Options{Name: "b", Addresses: prefixes(addrB4)})
	if _, err := a.SetPeers(t.Context(), b.as("b")); err != nil {
		t.Fatal(err)
	}
	l, err := b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled := make(chan error, 1)
	go func() {
		c, err := a.DialContext(testContext(t), "tcp", "10.99.0.2:80")
		if err == nil {
			c.Close()
		}
		dialled <- err
	}()
	waitFor(t, "a handshake message to be sent", func() bool {
		s, err := a.State()
		return err == nil && s.Peers[0].TransmitBytes > 0
	})
	if sent := a.Stack().Stats().SentPackets; sent != 0 {
		t.Errorf("%d packets were sent before there was a session", sent)
	}
	if _, err := b.SetPeers(t.Context(), a.as("a")); err != nil {
		t.Fatal(err)
	}
	if err := <-dialled; err != nil {
		t.Error(err)
	}
}

func TestNetDialErrorsTellTheReason(t *testing.T) {
	a, b := peered(t)
	lonely := openNode(t, Options{Addresses: prefixes(addrA4)})
	silent := b.as("silent")
	silent.PublicKey[0] ^= 1
	silent.AllowedIPs = prefixes(netip.MustParseAddr("10.99.0.3"))
	if _, err := a.SetPeers(t.Context(), silent); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ping(testContext(t), addrB4); err != nil {
		t.Fatal(err)
	}
	noPeer := "10.1.2.3: " + device.ErrNoPeer.Error()
	tests := []struct {
		n                *node
		network, address string
		want             error
		text             string // the error contains it
	}{
		{a, "tcp", "10.1.2.3:80", device.ErrNoPeer, "dial tcp 10.1.2.3:80: " + noPeer},
		{a, "udp", "10.1.2.3:80", device.ErrNoPeer, "dial udp 10.1.2.3:80: " + noPeer},
		{a, "ping", "10.1.2.3", device.ErrNoPeer, "dial ping 10.1.2.3: " + noPeer},
		{a, "tcp", "10.99.0.2:81", syscall.ECONNREFUSED, "dial tcp 10.99.0.2:81: connection refused"},
		{a, "tcp", "[fd99::2]:81", syscall.ECONNREFUSED, "dial tcp [fd99::2]:81: connection refused"},
		{a, "tcp4", "[fd99::2]:81", nil, "dial tcp4: lookup fd99::2: the address is not of the family asked for"},
		{lonely, "tcp", "[fd99::2]:81", syscall.ENETUNREACH, "the tunnel has no IPv6 address"},
		{a, "tcp", "10.99.0.3:80", context.DeadlineExceeded, fmt.Sprintf("dial tcp 10.99.0.3:80: no handshake with peer %s (silent) at %s", silent.PublicKey.Short(), silent.Endpoint)},
		{a, "tcp", "10.99.0.2", nil, "dial tcp: address 10.99.0.2: missing port in address"},
		{a, "tcp", "10.99.0.2:none", nil, "dial tcp: lookup tcp/none: unknown port"},
		{a, "sctp", "10.99.0.2:1", net.UnknownNetworkError("sctp"), "dial sctp: unknown network sctp"},
		{a, "tcp", "host.example:1", nil, "dial tcp: lookup host.example: the tunnel has no DNS server: set one (DNS = in the file), or dial an IP address"},
		{a, "tcp", "localhost:1", nil, "dial tcp: lookup localhost: there is no localhost in a tunnel"},
	}
	for _, test := range tests {
		t.Run(test.network+" "+test.address, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := test.n.DialContext(ctx, test.network, test.address)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got  %v\nwant %s", err, test.text)
			}
			op, ok := errors.AsType[*net.OpError](err)
			if !ok || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %#v, want a net.OpError around %v", err, test.want)
			}
			if ok && op.Timeout() != (test.want == context.DeadlineExceeded) {
				t.Errorf("Timeout is %v for %v", op.Timeout(), err)
			}
		})
	}
}

// There is a session, yet the host behind the peer is silent: that is another thing than no
// session, and the error must say so.
func TestDialToSilentHostBehindPeerSaysThatThePeerIsThere(t *testing.T) {
	a, b := peered(t)
	far := b.as("b")
	far.AllowedIPs = append(far.AllowedIPs, netip.MustParsePrefix("10.5.0.0/16"))
	if _, err := a.SetPeers(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ping(testContext(t), addrB4); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := a.DialContext(ctx, "tcp", "10.5.0.1:80")
	want := "dial tcp 10.5.0.1:80: no answer, though there is a session with the peer: the host behind it is off, or a firewall drops this"
	if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// The far side restarts with its key and address: the session of the near side is dead, and
// WireGuard would find out after 15 s.
func TestDialToRestartedPeerDoesNotStall(t *testing.T) {
	t.Parallel() // it waits 5 s, the least time between two handshakes
	a, b := peered(t)
	if _, err := a.Ping(testContext(t), addrB4); err != nil {
		t.Fatal(err)
	}
	state, err := b.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{Name: "b again", Addresses: prefixes(addrB4), Config: device.Config{
		PrivateKey: b.key, ListenPort: state.ListenPort, Peers: []device.PeerConfig{a.quiet()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	l, err := again.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	c, err := a.DialContext(ctx, "tcp", "10.99.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// quiet is the peer n as somebody sees it who does not know where it is.
func (n *node) quiet() device.PeerConfig {
	p := n.as("quiet")
	p.Endpoint = device.Endpoint{}
	return p
}

func TestDialWithoutDeadlineObeysCancel(t *testing.T) {
	a, b := peered(t)
	b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	dialled := make(chan error, 1)
	go func() { _, err := a.DialContext(ctx, "tcp", "10.99.0.2:80"); dialled <- err }()
	waitFor(t, "a handshake message to be sent", func() bool {
		s, err := a.State()
		return err == nil && s.Peers[0].TransmitBytes > 0
	})
	cancel()
	if err := <-dialled; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestHTTPOverTheTunnel(t *testing.T) {
	a, b := peered(t)
	l, err := b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.RemoteAddr[:strings.LastIndex(r.RemoteAddr, ":")])
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	transport := a.HTTPTransport()
	client := &http.Client{Transport: transport}
	for _, host := range []string{"10.99.0.2", "[fd99::2]"} {
		resp, err := client.Get("http://" + host)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasPrefix(string(body), "hello ") {
			t.Errorf("got %q, %v", body, err)
		}
	}
	transport.CloseIdleConnections()
	server.Close()
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
}

func TestPeersChangeUnderAConnection(t *testing.T) {
	a, b := peered(t)
	near, far := connected(t, a.stack, b.stack, at(addrB4, 80))
	for i := range 50 {
		other := b.as("other")
		other.PublicKey[1] ^= byte(i + 1)
		other.AllowedIPs = prefixes(netip.AddrFrom4([4]byte{10, 50, 0, byte(i)}))
		if _, err := a.SetPeers(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		wantEcho(t, near, far)
		if _, err := a.RemovePeers(t.Context(), other.PublicKey); err != nil {
			t.Fatal(err)
		}
		wantEcho(t, near, far)
	}
	changes, err := a.Apply(t.Context(), device.Config{Peers: []device.PeerConfig{b.as("b")}})
	if err != nil || len(changes) != 0 {
		t.Errorf("applying what is there: %v, %v", changes, err)
	}
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]Options{
		"open tunnel: MTU 1000 is too small: these addresses need at least 1280": {Addresses: prefixes(addrA6), MTU: 1000},
		"open tunnel: device: ": {Config: device.Config{PrivateKey: key, Peers: []device.PeerConfig{{}}}},
	}
	for want, o := range tests {
		n, err := Open(o)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), strings.TrimSuffix(want, "device: ")) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestNetCloseDuringEverything(t *testing.T) {
	for range 3 {
		a, b := peered(t)
		l, err := b.Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		group.Go(func() { sink(l, &group) })
		started := make(chan struct{}, 8)
		for range 2 {
			group.Go(func() { pourNet(a.Net, started) })
		}
		group.Go(func() {
			for i := 0; ; i++ {
				other := b.as("other")
				other.PublicKey[1] ^= byte(i + 1)
				other.AllowedIPs = nil
				if _, err := a.SetPeers(context.Background(), other); err != nil {
					return
				}
				a.RemovePeers(context.Background(), other.PublicKey)
			}
		})
		<-started
		group.Go(func() { b.Close() })
		group.Go(func() { a.Close() })
		a.Close()
		group.Wait()
	}
}

func pourNet(n *Net, started chan<- struct{}) {
	for i := 0; ; i++ {
		c, err := n.Dial("tcp", "10.99.0.2:80")
		if err == nil {
			_, err = c.Write(make([]byte, 256<<10))
			c.Close()
		}
		if i == 0 {
			started <- struct{}{}
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

func TestListenOnWhatIsNotOurs(t *testing.T) {
	a, _ := peered(t)
	tests := map[string]func() error{
		"listen tcp 10.99.0.2:80: 10.99.0.2 is not an address of this tunnel: cannot assign requested address": func() error { _, err := a.Listen("tcp", "10.99.0.2:80"); return err },
		"listen udp: unknown network udp": func() error { _, err := a.Listen("udp", ":80"); return err },
		"listen udp4: address here: not an IP address: use one of the tunnel's, or none for all": func() error { _, err := a.ListenPacket("udp4", "here:80"); return err },
		"listen tcp6 10.99.0.1:80: address 10.99.0.1: tcp6 needs an address of the other family": func() error { _, err := a.Listen("tcp6", "10.99.0.1:80"); return err },
	}
	for want, listen := range tests {
		if err := listen(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
