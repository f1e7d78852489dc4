package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/proxy"
)

// everything asks for one service of each kind.
const everything = `tunnels: [wg0.conf]
socks5: [0, {listen: "unix:socks.sock"}]
http: [0]
forward: [tcp/0=far.test:7, udp/0=10.0.0.1:7]
publish: [tcp/8080=TCP, udp/8080=UDP]
admin: unix:admin.sock
`

// startAll runs a gateway with everything, published to echoes on this machine.
func startAll(t *testing.T) (*rig, *far) {
	t.Helper()
	f := newFar(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	serveEcho(t, tcp)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	mustDo(t, err)
	serveEchoPackets(t, udp)
	yaml := strings.NewReplacer("TCP", tcp.Addr().String(), "UDP", udp.LocalAddr().String()).Replace(everything)
	return startRig(t, map[string]string{"gateway.yaml": yaml, "wg0.conf": f.conf()}, nil), f
}

func socksClient(t *testing.T, network, address string, auth *proxy.Auth) proxy.Dialer {
	t.Helper()
	d, err := proxy.SOCKS5(network, address, auth, nil)
	mustDo(t, err)
	return d
}

func viaSOCKS(t *testing.T, network, address, target string) net.Conn {
	t.Helper()
	conn, err := socksClient(t, network, address, nil).Dial("tcp", target)
	mustDo(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func viaHTTP(t *testing.T, address string) *http.Client {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address})}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestEveryServiceCarriesData(t *testing.T) {
	r, f := startAll(t)

	t.Run("socks5 to an address and to a name", func(t *testing.T) {
		exchange(t, viaSOCKS(t, "tcp", r.listen(SOCKS5, "tcp"), "10.0.0.1:7"), "hello")
		exchange(t, viaSOCKS(t, "tcp", r.listen(SOCKS5, "tcp"), "far.test:7"), "hello")
	})
	t.Run("socks5 on a unix socket", func(t *testing.T) {
		exchange(t, viaSOCKS(t, "unix", r.path("socks.sock"), "far.test:7"), "hello")
	})
	t.Run("http, plain and by CONNECT", func(t *testing.T) {
		resp, err := viaHTTP(t, r.listen(HTTP, "tcp")).Post("http://far.test/path", "text/plain", strings.NewReader("body"))
		mustDo(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		mustDo(t, err)
		if string(b) != "POST far.test/path body" {
			t.Errorf("got %q", b)
		}
		conn := dialTo(t, "tcp", r.listen(HTTP, "tcp"))
		io.WriteString(conn, "CONNECT far.test:7 HTTP/1.1\r\nHost: far.test:7\r\n\r\n")
		head := make([]byte, len("HTTP/1.1 200"))
		_, err = io.ReadFull(conn, head)
		mustDo(t, err)
		if string(head) != "HTTP/1.1 200" {
			t.Errorf("CONNECT: %q", head)
		}
	})
	t.Run("tcp forward, half-closed, with a megabyte after it", func(t *testing.T) {
		megabyteAfterHalfClose(t, dialTo(t, "tcp", r.listen(Forward, "tcp")))
	})
	t.Run("tcp publish, half-closed, with a megabyte after it", func(t *testing.T) {
		conn, err := f.net.DialContext(t.Context(), "tcp", "10.0.0.2:8080")
		mustDo(t, err)
		defer conn.Close()
		megabyteAfterHalfClose(t, conn)
	})
	t.Run("udp forward and publish", func(t *testing.T) {
		forward := dialTo(t, "udp", r.listen(Forward, "udp"))
		publish, err := f.net.DialContext(t.Context(), "udp", "10.0.0.2:8080")
		mustDo(t, err)
		defer publish.Close()
		for _, size := range []int{0, 1, 1200, 9000, 60000} {
			payload := strings.Repeat("x", size)
			exchangePacket(t, forward, payload)
			exchangePacket(t, publish, payload)
		}
	})
	t.Run("a target that refuses is refused to the client", func(t *testing.T) {
		_, err := socksClient(t, "tcp", r.listen(SOCKS5, "tcp"), nil).Dial("tcp", "10.0.0.1:9")
		if err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("socks5: %v", err)
		}
	})
	t.Run("status tells all of it", func(t *testing.T) { checkStatus(t, r.Status()) })
	mustDo(t, r.stop())
}

func checkStatus(t *testing.T, s Status) {
	t.Helper()
	if !s.Ready || len(s.NotReady) > 0 || len(s.Problems) > 0 {
		t.Errorf("not ready: %v, %v", s.NotReady, s.Problems)
	}
	if len(s.Tunnels) != 1 || len(s.Services) != 7 {
		t.Fatalf("%d tunnels, %d services", len(s.Tunnels), len(s.Services))
	}
	p := s.Tunnels[0].Peers[0]
	if p.Name != "far" || p.LastHandshake.IsZero() || p.ReceiveBytes < 1<<20 || p.TransmitBytes < 1<<20 || !strings.HasPrefix(p.Endpoint, "127.0.0.1:") {
		t.Errorf("peer %+v", p)
	}
	for _, service := range s.Services {
		if !service.Up || service.Accepted == 0 || service.SentBytes == 0 || service.ReceivedBytes == 0 {
			t.Errorf("service %+v", service)
		}
	}
	if got := s.Services[0].Refused["refused"]; got != 1 {
		t.Errorf("refused %v", s.Services[0].Refused)
	}
}

// megabyteAfterHalfClose sends a megabyte, ends its side, and reads it back to the end.
func megabyteAfterHalfClose(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		if err == nil {
			err = conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(conn)
	mustDo(t, <-sent, err)
	if sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("%d bytes back, not the %d that were sent", len(got), len(data))
	}
}

// exchangePacket sends a datagram until it comes back.
func exchangePacket(t *testing.T, conn net.Conn, payload string) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for range 50 {
		_, err := io.WriteString(conn, payload)
		mustDo(t, err)
		conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(buf)
		if err == nil && string(buf[:n]) == payload {
			return
		}
	}
	t.Fatalf("a datagram of %d bytes never came back", len(payload))
}

func TestTwoGatewaysPublishAndForwardToEachOther(t *testing.T) {
	f := newFar(t) // for its keys and echo alone
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	serveEcho(t, echo)
	server := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [srv.conf]\npublish: [tcp/80=" + echo.Addr().String() + "]\n",
		"srv.conf":     fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.7.0.1/24\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.7.0.2/32\n", f.key.Reveal(), f.near.Public()),
	}, nil)
	client := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [cli.conf]\nforward: [tcp/0=10.7.0.1:80]\n",
		"cli.conf": fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.7.0.2/24\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.7.0.0/24\nEndpoint = localhost:%d\n",
			f.near.Reveal(), f.key.Public(), server.Status().Tunnels[0].ListenPort),
	}, nil)
	megabyteAfterHalfClose(t, dialTo(t, "tcp", client.listen(Forward, "tcp")))
}

func TestWireproxyFileEndToEnd(t *testing.T) {
	f := newFar(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	serveEcho(t, echo)
	r := newRig(t, map[string]string{
		"wg.conf": f.conf(),
		"wireproxy.conf": `WGConfig = wg.conf

[Socks5]
BindAddress = 127.0.0.1:0
Username = me
Password = $PROXY_PASSWORD

[http]
BindAddress = 127.0.0.1:0

[TCPClientTunnel]
BindAddress = 127.0.0.1:0
Target = far.test:7

[TCPServerTunnel]
ListenPort = 3422
Target = ` + echo.Addr().String() + `

[UDPProxyTunnel]
BindAddress = 127.0.0.1:0
Target = 10.0.0.1:7
InactivityTimeout = 30

[STDIOTunnel]
Target = far.test:22
`}, nil)
	r.options.Sources = Sources{Files: []string{r.path("wireproxy.conf")}, LookupEnv: func(string) (string, bool) { return "planted-secret", true }}
	r.run()

	conn, err := socksClient(t, "tcp", r.listen(SOCKS5, "tcp"), &proxy.Auth{User: "me", Password: "planted-secret"}).Dial("tcp", "far.test:7")
	mustDo(t, err)
	defer conn.Close()
	exchange(t, conn, "hello")
	if _, err := socksClient(t, "tcp", r.listen(SOCKS5, "tcp"), &proxy.Auth{User: "me", Password: "wrong"}).Dial("tcp", "far.test:7"); err == nil {
		t.Error("a wrong password is accepted")
	}
	resp, err := viaHTTP(t, r.listen(HTTP, "tcp")).Get("http://far.test/")
	mustDo(t, err)
	resp.Body.Close()
	exchange(t, dialTo(t, "tcp", r.listen(Forward, "tcp")), "hello")
	exchangePacket(t, dialTo(t, "udp", r.listen(Forward, "udp")), "hello")
	inside, err := f.net.DialContext(t.Context(), "tcp", "10.0.0.2:3422")
	mustDo(t, err)
	defer inside.Close()
	exchange(t, inside, "hello")
	if got := r.log.count("configuration line is ignored"); got != 1 {
		t.Errorf("%d lines are said to be ignored, want [STDIOTunnel] alone:\n%s", got, r.log)
	}
}

func TestNoSecretIsEverSaid(t *testing.T) {
	f := newFar(t)
	r := newRig(t, map[string]string{
		"wg0.conf":     f.conf(),
		"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [{listen: 0, users: users}]\nadmin: unix:admin.sock\n",
		"users":        "me:planted-secret\n",
	}, nil)
	r.run()
	conn, err := socksClient(t, "tcp", r.listen(SOCKS5, "tcp"), &proxy.Auth{User: "me", Password: "planted-secret"}).Dial("tcp", "far.test:7")
	mustDo(t, err)
	conn.Close()
	r.write("users", "me:another-planted-secret\n")
	r.write("wg0.conf", strings.Replace(f.conf(), "[Peer]", "[Peer]\nPresharedKey = planted-secret", 1))
	if _, err := r.Reload(t.Context()); err == nil {
		t.Fatal("accepted")
	}
	r.write("wg0.conf", strings.Replace(f.conf(), f.near.Reveal(), newKey(t).Reveal(), 1))
	changes := r.reload()
	spec, err := Load(r.options.Sources)
	mustDo(t, err)
	said := r.log.String() + asJSON(t, r.Status()) + asJSON(t, changes) + asJSON(t, spec) +
		fmt.Sprintf("%v %+v %#v", spec, spec, spec)
	for name, secret := range map[string]string{
		"password":    "planted-secret",
		"private key": f.near.Reveal()[:20],
	} {
		if strings.Contains(said, secret) {
			at := strings.Index(said, secret)
			t.Errorf("%s is said: …%s…", name, said[max(0, at-200):min(len(said), at+60)])
		}
	}
}

func TestStartIsAllOrNothing(t *testing.T) {
	f := newFar(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer taken.Close()
	r := newRig(t, map[string]string{
		"wg0.conf":     f.conf(),
		"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [0, " + taken.Addr().String() + "]\nadmin: unix:admin.sock\n",
	}, nil)
	err = r.Run(t.Context())
	want := fmt.Sprintf("%s:2: socks5 %s: is taken by another program: stop it or choose another port", r.path("gateway.yaml"), taken.Addr())
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if s := r.Status(); s.Ready || len(s.Tunnels) != 0 {
		t.Errorf("status after it: %+v", s)
	}
	if _, err := r.Reload(t.Context()); err != ErrNotRunning {
		t.Errorf("reload after it: %v", err)
	}
}

func TestUseOutsideOfRun(t *testing.T) {
	g := New(Options{})
	if _, err := g.Reload(t.Context()); err != ErrNotRunning {
		t.Errorf("reload: %v", err)
	}
	if _, err := g.Plan(t.Context()); err != ErrNotRunning {
		t.Errorf("plan: %v", err)
	}
	if s := g.Status(); s.Ready {
		t.Errorf("status: %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Run(ctx); err == nil {
		t.Error("run of nothing succeeds")
	}
	if err := g.Run(ctx); err == nil {
		t.Error("second run succeeds")
	}
}

func TestFwMarkThatMayNotBeSetIsWarnedOf(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [wg0.conf]\nforward: [tcp/0=10.0.0.1:7]\n",
		"wg0.conf":     strings.Replace(f.conf(), "DNS", "FwMark = 51820\nDNS", 1),
	}, func(o *Options) { o.mayMark = func() bool { return false } })
	exchange(t, dialTo(t, "tcp", r.listen(Forward, "tcp")), "hello")
	want := r.path("wg0.conf") + `: FwMark: "0xca6c" is not set: it needs CAP_NET_ADMIN, and matters only where routes of this machine look at it`
	if got := r.Status().Config.Warnings; len(got) != 1 || got[0] != want {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
