package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/proxy"
)

// stream is a flow that counts up, in both directions, until it is ended.
type stream struct {
	conn  net.Conn
	count atomic.Uint64
	ended chan error
	stop  atomic.Bool
}

// startStream exchanges numbered lines over conn, one after the other.
func startStream(conn net.Conn) *stream {
	s := &stream{conn: conn, ended: make(chan error, 1)}
	go func() {
		for !s.stop.Load() {
			if err := tryExchange(conn, fmt.Sprintf("line %d\n", s.count.Load())); err != nil {
				s.ended <- fmt.Errorf("after %d lines: %w", s.count.Load(), err)
				return
			}
			s.count.Add(1)
		}
		s.ended <- nil
	}()
	return s
}

// end stops the stream and wants it to have lost nothing.
func (s *stream) end(t *testing.T, name string) {
	t.Helper()
	s.stop.Store(true)
	if err := <-s.ended; err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// progress waits until every stream has moved on.
func progress(t *testing.T, streams map[string]*stream) {
	t.Helper()
	for name, s := range streams {
		from := s.count.Load()
		eventually(t, name+" moves on", func() bool { return s.count.Load() > from || len(s.ended) > 0 })
	}
}

// Every kind of change, one reload after another, under flows of every kind: none of them
// breaks, and no session of WireGuard is made anew.
func TestReloadUnderTrafficLosesNothing(t *testing.T) {
	r, f := startAll(t)
	inside, err := f.net.DialContext(t.Context(), "tcp", "10.0.0.2:8080")
	mustDo(t, err)
	defer inside.Close()
	insideUDP, err := f.net.DialContext(t.Context(), "udp", "10.0.0.2:8080")
	mustDo(t, err)
	defer insideUDP.Close()
	streams := map[string]*stream{
		"socks5":  startStream(viaSOCKS(t, "tcp", r.listen(SOCKS5, "tcp"), "far.test:7")),
		"unix":    startStream(viaSOCKS(t, "unix", r.path("socks.sock"), "far.test:7")),
		"forward": startStream(dialTo(t, "tcp", r.listen(Forward, "tcp"))),
		"publish": startStream(inside),
		"udp":     startStream(dialTo(t, "udp", r.listen(Forward, "udp"))),
		"udp in":  startStream(insideUDP),
	}
	progress(t, streams)
	began := r.handshakes()
	yaml, conf := readText(t, r.path("gateway.yaml")), readText(t, r.path("wg0.conf"))
	base := []string{r.listen(SOCKS5, "tcp"), r.listen(HTTP, "tcp"), r.listen(Forward, "tcp"), r.listen(Forward, "udp")}

	other := newKey(t).Public()
	newPeer := "\n[Peer]\n# Name = other\nPublicKey = " + other.String() + "\nAllowedIPs = 10.9.0.0/24\n"
	for _, step := range []struct{ name, yaml, conf string }{
		{"a service comes", yaml + "# \n", conf},
		{"users", strings.Replace(yaml, `{listen: "unix:socks.sock"}`, `{listen: "unix:socks.sock", users: users}`, 1), conf},
		{"another target", strings.Replace(yaml, "far.test:7", "10.0.0.1:80", 1), conf},
		{"services go", "tunnels: [wg0.conf]\n" + yamlField(yaml, "publish") + yamlField(yaml, "socks5") + yamlField(yaml, "forward"), conf},
		{"all is back", yaml, conf},
		{"a peer comes", yaml, conf + newPeer},
		{"its allowed IPs grow and take one of the first peer's", yaml, conf + strings.Replace(newPeer, "10.9.0.0/24", "10.9.0.0/24, 10.0.0.128/25", 1)},
		{"it goes", yaml, conf},
		{"keepalive and DNS", yaml, strings.Replace(conf, "DNS = 10.0.0.1", "DNS = 10.0.0.1, corp.example", 1) + "PersistentKeepalive = 25\n"},
		{"MTU shrinks", yaml, strings.Replace(conf, "DNS", "MTU = 1280\nDNS", 1)},
		{"an address comes", yaml, strings.Replace(conf, "10.0.0.2/24", "10.0.0.2/24, 10.0.0.3/24", 1)},
		{"it goes again", yaml, conf},
	} {
		r.write("users", "me:word\n")
		r.write("gateway.yaml", step.yaml)
		r.write("wg0.conf", step.conf)
		r.reload()
		progress(t, streams)
	}
	if diff := cmp.Diff(began, r.handshakes()); diff != "" {
		t.Errorf("handshakes (-before +after):\n%s", diff)
	}
	for name, s := range streams {
		s.end(t, name)
	}
	now := []string{r.listen(SOCKS5, "tcp"), r.listen(HTTP, "tcp"), r.listen(Forward, "tcp"), r.listen(Forward, "udp")}
	if now[0] != base[0] || now[2] != base[2] {
		t.Errorf("listeners that were always asked for moved: %v, then %v", base, now)
	}
	if changes := r.reload(); len(changes) > 0 {
		t.Errorf("an unchanged reload changes %v", changes)
	}
}

// yamlField returns the line of a top-level field.
func yamlField(yaml, field string) string {
	for line := range strings.Lines(yaml) {
		if strings.HasPrefix(line, field+":") {
			return line
		}
	}
	return ""
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	mustDo(t, err)
	return string(b)
}

func TestBadReloadKeepsAll(t *testing.T) {
	f := newFar(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer taken.Close()
	udp, err := net.ListenPacket("udp", ":0")
	mustDo(t, err)
	defer udp.Close()
	udpPort := netip.MustParseAddrPort(udp.LocalAddr().String()).Port()
	yaml := "tunnels: [wg0.conf]\nsocks5: [0]\nforward: [tcp/0=10.0.0.1:7]\npublish: [tcp/8080=127.0.0.1:1]\n"
	files := map[string]string{"gateway.yaml": yaml, "wg0.conf": f.conf(), "b.conf": fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.8.0.2/24\nListenPort = %d\n", newKey(t).Reveal(), udpPort)}
	r := startRig(t, files, nil)
	streams := map[string]*stream{"forward": startStream(dialTo(t, "tcp", r.listen(Forward, "tcp")))}
	progress(t, streams)
	before := whatRuns(r.Status())

	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"a file that is no YAML", map[string]string{"gateway.yaml": "tunnels: ["}, "gateway.yaml:1: is not YAML: did not find expected node content"},
		{"a tunnel file with a fault", map[string]string{"wg0.conf": f.conf() + "Endpoint = nowhere\n"}, `wg0.conf:11: Endpoint: "nowhere" `},
		{"a tunnel file that is gone", map[string]string{"wg0.conf": ""}, "wg0.conf: "},
		{"a port that is taken, with all else changed", map[string]string{
			"gateway.yaml": "tunnels: [wg0.conf]\nhttp: [0, " + taken.Addr().String() + "]\npublish: [tcp/8081=127.0.0.1:1]\n",
			"wg0.conf":     strings.Replace(f.conf(), "10.0.0.2/24", "10.0.0.9/24", 1),
		}, "gateway.yaml:2: http " + taken.Addr().String() + ": is taken by another program: stop it or choose another port"},
		{"a new tunnel whose UDP port is taken", map[string]string{"gateway.yaml": strings.Replace(yaml, "[wg0.conf]", "[wg0.conf, b.conf]", 1) + "drain: 1s\n"}, ""},
		{"a tunnel that shall move to a UDP port that is taken", map[string]string{
			"wg0.conf": strings.Replace(f.conf(), "[Peer]", fmt.Sprintf("ListenPort = %d\nMTU = 1300\nAddress = 10.0.0.3/24\n[Peer]", udpPort), 1)}, "wg0.conf:6: ListenPort: "},
		{"*:port in the place of 127.0.0.1:port, and one that is taken", map[string]string{
			"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [{listen: \"*:PORT\", open: true}]\nforward: [tcp/0=10.0.0.1:7, tcp/" + taken.Addr().String() + "=a:1]\n",
		}, "forward tcp/" + taken.Addr().String() + ": is taken by another program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, port, _ := net.SplitHostPort(r.listen(SOCKS5, "tcp"))
			for name, text := range files {
				if changed, ok := tc.files[name]; ok {
					text = strings.ReplaceAll(changed, "PORT", port)
				}
				r.write(name, text)
			}
			rejections := r.log.count("configuration is rejected: what ran before runs on")
			changes, err := r.Reload(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || changes != nil {
				t.Errorf("changes %v, error %v, want %q", changes, err, tc.want)
			}
			s := r.Status()
			if s.Config.Rejected == nil || s.Config.Rejected.Since.IsZero() || strings.Join(s.Config.Rejected.Reasons, "\n") != err.Error() {
				t.Errorf("status: %+v", s.Config.Rejected)
			}
			if got := r.log.count("configuration is rejected: what ran before runs on") - rejections; got != len(reasons(err)) {
				t.Errorf("%d lines logged for %d faults", got, len(reasons(err)))
			}
			if diff := cmp.Diff(before, whatRuns(s)); diff != "" {
				t.Errorf("what runs changed (-before +after):\n%s", diff)
			}
			progress(t, streams)
			exchange(t, viaSOCKS(t, "tcp", r.listen(SOCKS5, "tcp"), "10.0.0.1:7"), "still here")
		})
	}
	for name, text := range files {
		r.write(name, text)
	}
	if changes := r.reload(); len(changes) > 0 {
		t.Errorf("the old files change %v", changes)
	}
	if s := r.Status(); s.Config.Rejected != nil || r.log.count("configuration is accepted again") != 1 {
		t.Errorf("rejected still: %+v", s.Config.Rejected)
	}
	streams["forward"].end(t, "forward")
}

// whatRuns is what a reload that fails must leave as it was.
func whatRuns(s Status) (out []string) {
	for _, t := range s.Tunnels {
		out = append(out, fmt.Sprint(t.Name, t.Addresses, t.DNS, t.MTU, t.ListenPort, t.PublicKey, t.Up))
		for _, p := range t.Peers {
			out = append(out, fmt.Sprint(p.Name, p.AllowedIPs, p.Declared, p.LastHandshake))
		}
	}
	for _, service := range s.Services {
		out = append(out, fmt.Sprint(service.Kind, service.Listen, service.Target, service.Up))
	}
	return out
}

func TestTunnelIsChangedBackWhenALaterOneCannotBe(t *testing.T) {
	f, second := newFar(t), newFar(t)
	udp, err := net.ListenPacket("udp", ":0")
	mustDo(t, err)
	defer udp.Close()
	port := netip.MustParseAddrPort(udp.LocalAddr().String()).Port()
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [a.conf, b.conf]\nforward: [a/tcp/0=10.0.0.1:7]\npublish: [a/tcp/80=a:1]\n",
		"a.conf":       f.conf(), "b.conf": second.conf(),
	}, nil)
	streams := map[string]*stream{"forward": startStream(dialTo(t, "tcp", r.listen(Forward, "tcp")))}
	progress(t, streams)
	eventually(t, "b shakes hands too", func() bool { return !strings.HasPrefix(r.handshakes()["b/far"], "0, ") })
	before := whatRuns(r.Status())
	r.write("a.conf", strings.NewReplacer("10.0.0.2/24", "10.0.0.2/24, 10.0.0.77/24", "DNS = 10.0.0.1", "MTU = 1300", "10.0.0.0/24", "10.0.0.0/24, 10.6.0.0/16").Replace(f.conf()))
	r.write("b.conf", strings.Replace(second.conf(), "DNS", fmt.Sprintf("ListenPort = %d\nDNS", port), 1))
	_, err = r.Reload(t.Context())
	if err == nil || !strings.Contains(err.Error(), r.path("b.conf")) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error %v, want b.conf and a port in use", err)
	}
	if diff := cmp.Diff(before, whatRuns(r.Status())); diff != "" {
		t.Errorf("what runs changed (-before +after):\n%s", diff)
	}
	progress(t, streams)
	streams["forward"].end(t, "forward")
}

func TestChangedPasswordIsAskedOfNewClientsOnly(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [{listen: 0, users: users}]\n",
		"wg0.conf":     f.conf(), "users": "me:old\n",
	}, nil)
	connect := func(pass string) (net.Conn, error) {
		return socksClient(t, "tcp", r.listen(SOCKS5, "tcp"), &proxy.Auth{User: "me", Password: pass}).Dial("tcp", "10.0.0.1:7")
	}
	conn, err := connect("old")
	mustDo(t, err)
	defer conn.Close()
	r.write("users", "me:new\n")
	if got, want := lines(r.reload()), "socks5 127.0.0.1:0: users: 1 user -> 1 user ["+r.path("gateway.yaml")+":2]\n"; got != want {
		t.Errorf("changes %q, want %q", got, want)
	}
	exchange(t, conn, "an old flow")
	if _, err := connect("old"); err == nil {
		t.Error("the old password is still good")
	}
	next, err := connect("new")
	mustDo(t, err)
	next.Close()
}

func TestKindOfAListenerChangesUnderItsFlows(t *testing.T) {
	f := newFar(t)
	port := freePort(t)
	yaml := func(kind string) string { return "tunnels: [wg0.conf]\ndrain: 300ms\n" + kind + ": [" + port + "]\n" }
	r := startRig(t, map[string]string{"gateway.yaml": yaml("socks5"), "wg0.conf": f.conf()}, nil)
	conn := viaSOCKS(t, "tcp", "127.0.0.1:"+port, "10.0.0.1:7")
	r.write("gateway.yaml", yaml("http"))
	r.reload()
	exchange(t, conn, "a flow of the old kind")
	resp, err := viaHTTP(t, "127.0.0.1:"+port).Get("http://10.0.0.1/")
	mustDo(t, err)
	resp.Body.Close()
	if got := r.Status().Services[0].Flows; got < 1 {
		t.Errorf("%d flows in the status, though one of the old kind goes on", got)
	}
	mustDo(t, r.stop())
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the flow of the old kind after the drain time: %v", err)
	}
}

// freePort returns a port that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	mustDo(t, err)
	return port
}

func TestWideListenerTakesThePlaceOfANarrowOne(t *testing.T) {
	f := newFar(t)
	port := freePort(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [" + port + "]\n", "wg0.conf": f.conf()}, nil)
	conn := viaSOCKS(t, "tcp", "127.0.0.1:"+port, "10.0.0.1:7")
	r.write("gateway.yaml", "tunnels: [wg0.conf]\nsocks5: [{listen: \"*:"+port+"\", open: true}]\n")
	r.reload()
	exchange(t, conn, "a flow of the narrow one")
	exchange(t, viaSOCKS(t, "tcp", "[::1]:"+port, "10.0.0.1:7"), "one of the wide one")
}

func TestTunnelsComeAndGo(t *testing.T) {
	whole := t // connections outlive the subtest that dials them
	f, second := newFar(t), newFar(t)
	yaml := "tunnels: [a.conf]\nforward: [tcp/0=10.0.0.1:7]\ndrain: 500ms\n"
	r := startRig(t, map[string]string{"gateway.yaml": yaml, "a.conf": f.conf(), "b.conf": second.conf(), "c.conf": f.conf()}, nil)
	old := dialTo(t, "tcp", r.listen(Forward, "tcp"))
	exchange(t, old, "through a")

	t.Run("renamed: the sessions go on", func(t *testing.T) {
		before := r.handshakes()["a/far"]
		r.write("gateway.yaml", strings.Replace(yaml, "a.conf", "c.conf", 1))
		r.reload()
		exchange(t, old, "through c, which is a")
		if after := r.handshakes()["c/far"]; after != before {
			t.Errorf("handshakes %s, then %s", before, after)
		}
	})
	t.Run("a second one, and the service goes over to it", func(t *testing.T) {
		r.write("gateway.yaml", "tunnels: [c.conf, b.conf]\nforward: [b/tcp/0=10.0.0.1:7]\ndrain: 500ms\n")
		r.reload()
		exchange(t, old, "through c still")
		exchange(t, dialTo(t, "tcp", r.listen(Forward, "tcp")), "through b")
		if peer, err := second.net.State(); err != nil || peer.Peers[0].ReceiveBytes == 0 {
			t.Errorf("nothing went through b: %v, %v", peer, err)
		}
	})
	t.Run("the first comes back at once", func(t *testing.T) {
		r.write("gateway.yaml", "tunnels: [b.conf]\nforward: [b/tcp/0=10.0.0.1:7]\ndrain: 1m\n")
		r.reload()
		r.write("gateway.yaml", "tunnels: [c.conf, b.conf]\nforward: [c/tcp/0=10.0.0.1:7]\ndrain: 500ms\n")
		r.reload()
		old = dialTo(whole, "tcp", r.listen(Forward, "tcp"))
		exchange(t, old, "through c again")
		r.write("gateway.yaml", "tunnels: [c.conf, b.conf]\nforward: [b/tcp/0=10.0.0.1:7]\ndrain: 500ms\n")
		r.reload()
	})
	t.Run("the first goes: its flows end after the drain time", func(t *testing.T) {
		r.write("gateway.yaml", "tunnels: [b.conf]\nforward: [b/tcp/0=10.0.0.1:7]\ndrain: 500ms\n")
		r.reload()
		exchange(t, old, "for a while")
		old.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := old.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the flow of a tunnel that is gone: %v", err)
		}
		exchange(t, dialTo(t, "tcp", r.listen(Forward, "tcp")), "through b")
	})
}

func TestFilesAreWatched(t *testing.T) {
	f := newFar(t)
	r := newRig(t, nil, func(o *Options) { o.Unwatched = false })
	dir := r.path("cm")
	mount := func(generation, target string) {
		swapData(t, dir, generation, map[string]string{
			"gateway.yaml": "tunnels: [wg0.conf]\nforward: [tcp/0=" + target + "]\n", "wg0.conf": f.conf()})
	}
	writeFile(t, dir+"/..0/x", "")
	mustDo(t, os.Symlink("..0", dir+"/..data"), os.Symlink("..data/gateway.yaml", dir+"/gateway.yaml"), os.Symlink("..data/wg0.conf", dir+"/wg0.conf"))
	mount("..1", "10.0.0.1:7")
	r.options.Sources.Config = dir + "/gateway.yaml"
	r.run()
	target := func() string { return r.Status().Services[0].Target }
	rejected := "configuration is rejected: what ran before runs on"

	mount("..2", "10.0.0.1:80")
	eventually(t, "the swapped link is obeyed", func() bool { return target() == "10.0.0.1:80" })
	mount("..3", "10.0.0.1:80") // other files, the same content
	mount("..4", "nonsense")
	eventually(t, "a bad file is refused", func() bool { return r.Status().Config.Rejected != nil })
	if target() != "10.0.0.1:80" {
		t.Errorf("target %s", target())
	}
	mount("..5", "nonsense")
	mount("..6", "10.0.0.1:7")
	eventually(t, "a good file is obeyed again", func() bool { return r.Status().Config.Rejected == nil && target() == "10.0.0.1:7" })
	if got := r.log.count(rejected); got != 1 {
		t.Errorf("the bad file is logged %d times, want once:\n%s", got, r.log)
	}
	if !r.Status().Config.Watched {
		t.Error("status says that files are not watched")
	}
}

func TestFileThatIsGoneForAMomentIsNoFault(t *testing.T) {
	f := newFar(t)
	r := newRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nforward: [tcp/0=10.0.0.1:7]\n", "wg0.conf": f.conf()},
		func(o *Options) { o.Unwatched = false })
	r.run()
	mustDo(t, os.Remove(r.path("wg0.conf")))
	<-time.After(3 * quiet) // the watcher has looked, and found nothing
	r.write("wg0.conf", f.conf()+"PersistentKeepalive = 25\n")
	eventually(t, "the new file is obeyed", func() bool { return r.Status().Tunnels[0].Peers[0].Keepalive == 25 })
	if r.log.count("configuration is rejected: what ran before runs on") != 0 {
		t.Errorf("rejected meanwhile:\n%s", r.log)
	}
	mustDo(t, os.Remove(r.path("wg0.conf")))
	eventually(t, "a file that stays away is refused", func() bool { return r.Status().Config.Rejected != nil })
}

func TestChangesThatNobodyAskedForAreLogged(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [0]\nuapiDir: uapi\n", "wg0.conf": f.conf()}, nil)
	conn := dialTo(t, "unix", r.path("uapi/wg0.sock"))
	fmt.Fprintf(conn, "set=1\npublic_key=%s\nallowed_ip=10.77.0.0/16\n\n", f.key.Public().Hex())
	b := make([]byte, 64)
	_, err := io.ReadAtLeast(conn, b, len("errno=0\n"))
	mustDo(t, err)
	eventually(t, "the change is logged", func() bool { return strings.Contains(r.log.String(), "10.77.0.0/16") })
	changes := r.reload()
	if len(changes) != 1 || changes[0].Field != "allowed_ips" || !strings.Contains(changes[0].What, "far") {
		t.Errorf("a reload puts back %v", changes)
	}
}
