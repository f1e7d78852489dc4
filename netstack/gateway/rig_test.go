package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far is the other side of a tunnel: a Net of its own on UDP loopback, with services.
//
//	gateway 10.0.0.2 ==== WireGuard over 127.0.0.1 ==== far 10.0.0.1
//	                                     tcp/7, udp/7 echo; tcp/80 http; udp/53 DNS
type far struct {
	t    *testing.T
	net  *netstack.Net
	key  device.PrivateKey
	port uint16
	near device.PrivateKey // the gateway's
}

var (
	farAddr = netip.MustParseAddr("10.0.0.1")
)

func newKey(t *testing.T) device.PrivateKey {
	t.Helper()
	k, err := device.NewPrivateKey()
	mustDo(t, err)
	return k
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{t: t, key: newKey(t), near: newKey(t)}
	n, err := netstack.Open(netstack.Options{
		Name:      "far",
		Addresses: []netip.Prefix{netip.PrefixFrom(farAddr, 24)},
		Config: device.Config{PrivateKey: f.key, Peers: []device.PeerConfig{{
			PublicKey: f.near.Public(), AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("10.0.0.3/32")},
		}}},
	})
	mustDo(t, err)
	f.net = n
	t.Cleanup(func() { n.Close() })
	state, err := n.State()
	mustDo(t, err)
	f.port = state.ListenPort
	f.serve()
	return f
}

// conf is the gateway's wg-quick file.
func (f *far) conf() string {
	return fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.0.0.2/24\nDNS = 10.0.0.1\n\n[Peer]\n# Name = far\nPublicKey = %s\nAllowedIPs = 10.0.0.0/24\nEndpoint = 127.0.0.1:%d\n",
		f.near.Reveal(), f.key.Public(), f.port)
}

func (f *far) serve() {
	echo, err := f.net.Listen("tcp", ":7")
	mustDo(f.t, err)
	serveEcho(f.t, echo)
	packets, err := f.net.ListenPacket("udp", ":7")
	mustDo(f.t, err)
	serveEchoPackets(f.t, packets)
	web, err := f.net.Listen("tcp", ":80")
	mustDo(f.t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Method+" "+r.Host+r.URL.Path+" ")
		io.Copy(w, r.Body)
	})}
	background(f.t, func() { server.Serve(web) }, func() { server.Close() })
	names, err := f.net.ListenPacket("udp", ":53")
	mustDo(f.t, err)
	resolver := &dns.Server{PacketConn: names, Handler: dns.HandlerFunc(answer)}
	background(f.t, func() { resolver.ActivateAndServe() }, func() { names.Close() })
}

// background runs serve until the end of the test.
func background(t *testing.T, serve, stop func()) {
	done := make(chan struct{})
	go func() { defer close(done); serve() }()
	t.Cleanup(func() { stop(); <-done })
}

// answer knows one name: far.test.
func answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	if q.Question[0].Name != "far.test." {
		m.Rcode = dns.RcodeNameError
	} else if q.Question[0].Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "far.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: farAddr.AsSlice()}}
	}
	w.WriteMsg(m)
}

// serveEcho sends back what comes, and ends its side when the other has ended.
func serveEcho(t *testing.T, ln net.Listener) {
	var conns sync.WaitGroup
	background(t, func() {
		defer conns.Wait()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { conn.Close() })
			conns.Go(func() {
				defer stop()
				defer conn.Close()
				io.Copy(conn, conn)
				conn.(interface{ CloseWrite() error }).CloseWrite()
			})
		}
	}, func() { ln.Close() })
}

func serveEchoPackets(t *testing.T, pc net.PacketConn) {
	background(t, func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(buf[:n], from)
		}
	}, func() { pc.Close() })
}

// logBook keeps log lines.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// count returns how many lines have the message.
func (l *logBook) count(message string) int {
	return strings.Count(l.String(), fmt.Sprintf("%q:%q", "message", message))
}

// rig is a gateway that runs in a folder of its own.
type rig struct {
	*Gateway
	t    *testing.T
	dir  string
	log  *logBook
	stop func() error // ends the gateway and returns what Run returned
}

// startRig writes the files and runs a gateway with gateway.yaml and flags.
func startRig(t *testing.T, files map[string]string, change func(*Options)) *rig {
	t.Helper()
	r := newRig(t, files, change)
	r.run()
	return r
}

func newRig(t *testing.T, files map[string]string, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: new(logBook)}
	for name, text := range files {
		r.write(name, text)
	}
	o := Options{Log: zerolog.New(r.log), Sources: Sources{Config: r.path("gateway.yaml")}, Unwatched: true}
	if change != nil {
		change(&o)
	}
	r.Gateway = New(o)
	return r
}

// run starts the gateway and waits until it is up.
func (r *rig) run() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var once sync.Once
	var err error
	r.stop = func() error {
		once.Do(func() { cancel(); err = <-ended })
		return err
	}
	r.t.Cleanup(func() { r.Abort(); r.stop() })
	select {
	case <-r.Up():
	case err := <-ended:
		ended <- err
		r.t.Fatalf("gateway did not start: %v", err)
	case <-time.After(30 * time.Second):
		r.t.Fatal("gateway did not start in time")
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name, text string) { r.t.Helper(); writeFile(r.t, r.path(name), text) }

// listen returns where the service of that kind and target listens.
func (r *rig) listen(kind Kind, network string) string {
	r.t.Helper()
	for _, s := range r.Status().Services {
		if s.Kind == kind && s.Network == network {
			return s.Listen
		}
	}
	r.t.Fatalf("no service %s %s in %+v", kind, network, r.Status().Services)
	return ""
}

// reload reloads and wants it to be accepted.
func (r *rig) reload() []Change {
	r.t.Helper()
	changes, err := r.Reload(r.t.Context())
	if err != nil {
		r.t.Fatalf("reload: %v", err)
	}
	return changes
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("never came true: %s", what)
		}
	}
}

// exchange sends text over conn and wants it back.
func exchange(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if err := tryExchange(conn, text); err != nil {
		t.Fatal(err)
	}
}

func tryExchange(conn net.Conn, text string) error {
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("sent %q, got %q", text, got)
	}
	return nil
}

func dialTo(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	mustDo(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// handshakes returns when each peer of each tunnel last shook hands, and how often.
func (r *rig) handshakes() map[string]string {
	out := make(map[string]string)
	for _, tunnel := range r.Status().Tunnels {
		for _, p := range tunnel.Peers {
			out[tunnel.Name+"/"+p.Name] = fmt.Sprintf("%d, last %s", p.Handshakes, p.LastHandshake)
		}
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	mustDo(t, err)
	return string(b)
}
