package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device"
)

// ready is a gateway that says what it is told to.
type ready struct {
	status  Status
	planned []string
}

func (r *ready) Status() Status { return r.status }

func (r *ready) Plan(_ context.Context, files ...string) (Plan, error) {
	r.planned = files
	return Plan{Changes: []Change{{What: "gateway", Field: "drain", Old: "1s", New: "2s"}}}, nil
}

func TestAdminAnswersReadersOnly(t *testing.T) {
	up, down := &ready{status: Status{Ready: true}}, &ready{status: Status{NotReady: []string{"the gateway is stopping", "tunnel wg0 is down: device is closed"}}}
	for _, tc := range []struct {
		name     string
		reporter reporter
		method   string
		path     string
		host     string
		header   string
		code     int
		body     string
	}{
		{"livez", down, "GET", "/livez", "127.0.0.1:9080", "", 200, "ok\n"},
		{"readyz when ready", up, "GET", "/readyz", "127.0.0.1:9080", "", 200, "ok\n"},
		{"readyz when not", down, "GET", "/readyz", "127.0.0.1:9080", "", 503, "the gateway is stopping\ntunnel wg0 is down: device is closed\n"},
		{"host is a name of this machine", up, "GET", "/livez", "localhost:9080", "", 200, "ok\n"},
		{"host is a pod's address", up, "GET", "/readyz", "[fd00::7]:9080", "", 200, "ok\n"},
		{"host is a name that somebody made", up, "GET", "/status", "evil.example:9080", "", 403, "the Host of a request must be an IP address or localhost\n"},
		{"host is missing", up, "GET", "/status", "", "", 403, "the Host of a request must be an IP address or localhost\n"},
		{"from another site", up, "GET", "/status", "127.0.0.1", "cross-site", 403, "requests from other sites are not answered\n"},
		{"POST", up, "POST", "/status", "127.0.0.1", "", 405, "Method Not Allowed\n"},
		{"DELETE", up, "DELETE", "/plan", "127.0.0.1", "", 405, "Method Not Allowed\n"},
		{"plan over TCP", up, "GET", "/plan", "127.0.0.1", "", 403, "a plan is given on a unix socket only: run the gateway with --admin unix:/path\n"},
		{"unknown path", up, "GET", "/", "127.0.0.1", "", 404, "404 page not found\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := httptest.NewRequest(tc.method, tc.path, nil)
			req.Host = tc.host
			if tc.header != "" {
				req.Header.Set("Sec-Fetch-Site", tc.header)
			}
			w := httptest.NewRecorder()
			adminHandler(tc.reporter).ServeHTTP(w, req)
			if w.Code != tc.code || w.Body.String() != tc.body {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tc.code, tc.body)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be stored")
			}
		})
	}
	if up.planned != nil {
		t.Error("a plan was made")
	}
}

func TestClientAsksARunningGateway(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [wg0.conf]\nforward: [tcp/0=10.0.0.1:7]\nadmin: unix:admin.sock\n", "wg0.conf": f.conf(),
		"new/wg0.conf": strings.Replace(f.conf(), "10.0.0.0/24", "10.0.0.0/24, 10.5.0.0/16", 1),
		"bad.conf":     "[Interface]\nAddress = 10.0.0.2/33\n",
	}, nil)
	c, err := NewClient("unix:" + r.path("admin.sock"))
	mustDo(t, err)
	if s, err := c.Status(t.Context()); err != nil || !s.Ready || s.Tunnels[0].PublicKey != f.near.Public() {
		t.Errorf("status: %+v, %v", s, err)
	}
	if p, err := c.Plan(t.Context()); err != nil || p.String() != "nothing would change\n" {
		t.Errorf("plan of nothing: %v, %v", p, err)
	}

	peer := "tunnel wg0 peer " + f.key.Public().Short() + " (far)"
	for _, tc := range []struct {
		name, file string
		want       Plan
	}{
		{"another file for the tunnel", "new/wg0.conf", Plan{Changes: []Change{
			{peer, "allowed_ips", "", "10.5.0.0/16", r.path("new/wg0.conf") + ":6"}}}},
		{"a file with faults", "bad.conf", Plan{Refused: []string{
			r.path("bad.conf") + `:2: Address: "10.0.0.2/33" has a prefix length that is not a number from 0 to 32`,
		}}},
		{"a file that is not there", "nosuch.conf", Plan{Refused: []string{r.path("nosuch.conf") + ": cannot be read: no such file or directory"}}},
	} {
		got, err := c.Plan(t.Context(), r.path(tc.file))
		mustDo(t, err)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	r.write("gateway.yaml", "tunnels: [wg0.conf]\nforward: [tcp/0=10.0.0.1:8]\nadmin: unix:admin.sock\n")
	want := fmt.Sprintf("forward tcp/127.0.0.1:0: target: 10.0.0.1:7 -> 10.0.0.1:8 [%s:2]\n", r.path("gateway.yaml"))
	if p, err := c.Plan(t.Context()); err != nil || p.String() != want {
		t.Errorf("plan %q, %v, want %q", p, err, want)
	}
	if got := lines(r.reload()); got != want {
		t.Errorf("reload does %q, its plan was %q", got, want)
	}
	mustDo(t, r.stop())
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "ask the gateway at unix:"+r.path("admin.sock")) {
		t.Errorf("status of a gateway that has ended: %v", err)
	}
}

func TestPlanWithSeveralTunnelsGoesByName(t *testing.T) {
	f, second := newFar(t), newFar(t)
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [a.conf, b.conf]\nadmin: unix:admin.sock\n", "a.conf": f.conf(), "b.conf": second.conf(),
		"new/b.conf": second.conf() + "PersistentKeepalive = 25\n", "c.conf": f.conf(),
	}, nil)
	p, err := r.Plan(t.Context(), r.path("new/b.conf"))
	mustDo(t, err)
	if len(p.Changes) != 1 || p.Changes[0].Field != "keepalive" {
		t.Errorf("plan %+v", p)
	}
	p, err = r.Plan(t.Context(), r.path("c.conf"))
	mustDo(t, err)
	want := Plan{Refused: []string{r.path("c.conf") + ": has the name of no tunnel that runs: did you mean a?"}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestAdminListenerMoves(t *testing.T) {
	f := newFar(t)
	yaml := func(admin string) string { return "tunnels: [wg0.conf]\nadmin: " + admin + "\n" }
	r := startRig(t, map[string]string{"gateway.yaml": yaml("unix:a.sock"), "wg0.conf": f.conf()}, nil)
	port := freePort(t)
	for _, step := range []struct {
		admin   string
		client  string
		mode    os.FileMode
		goneNow string
	}{
		{"127.0.0.1:" + port, "127.0.0.1:" + port, 0, "a.sock"},
		{"\"[::1]:" + port + "\"", "[::1]:" + port, 0, ""},
		{"{listen: \"*:" + port + "\", open: true}", "127.0.0.1:" + port, 0, ""},
		{"unix:a.sock", "unix:" + r.path("a.sock"), 0o600, ""},
		{"{listen: \"unix:a.sock\", open: true}", "unix:" + r.path("a.sock"), 0o666, ""},
	} {
		r.write("gateway.yaml", yaml(step.admin))
		r.reload()
		c, err := NewClient(step.client)
		mustDo(t, err)
		if s, err := c.Status(t.Context()); err != nil || !s.Ready {
			t.Errorf("%s: %+v, %v", step.admin, s, err)
		}
		if step.mode != 0 {
			info, err := os.Stat(r.path("a.sock"))
			mustDo(t, err)
			if got := info.Mode().Perm(); got != step.mode {
				t.Errorf("%s: mode %o", step.admin, got)
			}
		}
		if step.goneNow != "" {
			if _, err := os.Stat(r.path(step.goneNow)); !os.IsNotExist(err) {
				t.Errorf("%s: %s is left behind", step.admin, step.goneNow)
			}
		}
	}
	r.write("gateway.yaml", "tunnels: [wg0.conf]\n")
	r.reload()
	if _, err := net.Dial("unix", r.path("a.sock")); err == nil {
		t.Error("the admin listener is open though nobody asks for it")
	}
}

func TestAdminHoldsSlowClientsToTheirTime(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nadmin: unix:a.sock\n", "wg0.conf": f.conf()}, nil)
	server := r.now.Load().admin.server
	if server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.IdleTimeout == 0 || server.MaxHeaderBytes == 0 {
		t.Errorf("a deadline or bound is missing: %+v", server)
	}
	conn := dialTo(t, "unix", r.path("a.sock"))
	io.WriteString(conn, "GET /status HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10))
	b, err := io.ReadAll(conn)
	if !strings.HasPrefix(string(b), "HTTP/1.1 431") {
		t.Errorf("a head of 64 KiB: %q, %v", b, err)
	}
}

func TestReadinessFollowsTheTunnel(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\npublish: [tcp/80=a:1]\nadmin: unix:a.sock\n", "wg0.conf": f.conf()}, nil)
	r.now.Load().tunnels["wg0"].close() // as if it had died
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.path("a.sock"))
	}}}
	resp, err := client.Get("http://localhost/readyz")
	mustDo(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	mustDo(t, err)
	if resp.StatusCode != 503 || !strings.Contains(string(b), "tunnel wg0 is down: device is closed\n") {
		t.Errorf("readyz: %d %q", resp.StatusCode, b)
	}
}

func TestStatusReadsBack(t *testing.T) {
	r, _ := startAll(t)
	s := r.Status()
	var again Status
	mustDo(t, json.Unmarshal([]byte(asJSON(t, s)), &again))
	if diff := cmp.Diff(asJSON(t, s), asJSON(t, again)); diff != "" {
		t.Errorf("status (-written +read):\n%s", diff)
	}
	if s.Config.Files[0] != filepath.Join(r.dir, "gateway.yaml") || s.Config.Applied.IsZero() {
		t.Errorf("config %+v", s.Config)
	}
}

func TestEndpointThatDoesNotResolveIsAProblemAndNoReasonToBeUnready(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [wg0.conf]\n", "wg0.conf": strings.Replace(f.conf(), "127.0.0.1:", "far.invalid:", 1),
	}, func(o *Options) { o.Resolver = nowhere{} })
	eventually(t, "the problem is seen", func() bool { return len(r.Status().Problems) == 1 })
	s := r.Status()
	if p := s.Problems[0]; p.Subject != "tunnel wg0 peer "+f.key.Public().Short()+" (far)" || !strings.Contains(p.Reason, "far.invalid") {
		t.Errorf("problem %+v", p)
	}
	if !s.Ready {
		t.Errorf("not ready: %v", s.NotReady)
	}
}

// nowhere knows no name.
type nowhere struct{}

func (nowhere) Resolve(_ context.Context, host string) (device.Answer, error) {
	return device.Answer{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}
