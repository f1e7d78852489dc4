package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// webTarget is a web server of the test's.
func webTarget(t testing.TB, h http.HandlerFunc) (address string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.DisableGeneralOptionsHandler = true
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// webProxy is an HTTP proxy with these options, on a dialer of this machine's if they have
// none.
func webProxy(t testing.TB, o Options) (s *Server, address string) {
	t.Helper()
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer)
	}
	s = must[*Server](t)(NewHTTP(o))
	return s, serve(t, s)
}

// rawClient speaks HTTP by hand, on one connection.
type rawClient struct {
	net.Conn
	r *bufio.Reader
}

func dialRaw(t testing.TB, address string) *rawClient {
	c := dialProxy(t, address)
	return &rawClient{c, bufio.NewReader(c)}
}

// ask sends text, in which bare line ends become those of HTTP, and reads the response to a
// request by the method.
func (c *rawClient) ask(t testing.TB, method, text string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return c.response(t, method)
}

func (c *rawClient) response(t testing.TB, method string) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestHTTPPassesEveryMethodOnOneConnection(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Saw", r.Method+" "+r.RequestURI)
		w.WriteHeader(207)
		w.Write(body)
	})
	s, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "BREW"} {
		res, body := c.ask(t, method, fmt.Sprintf("%s http://%s/a%%2fb?x=1;y=%%zz HTTP/1.1\nHost: %[2]s\nContent-Length: 4\n\nbody", method, web))
		want := "body"
		if method == "HEAD" {
			want = ""
		}
		if got := res.Header.Get("X-Saw"); res.StatusCode != 207 || body != want || got != method+" /a%2fb?x=1;y=%zz" {
			t.Errorf("%s: status %d, body %q, target saw %q", method, res.StatusCode, body, got)
		}
	}
	c.Close()
	eventually(t, "flow ends", func() bool { return s.Live() == 0 })
	if n := s.Counters(); n.Accepted != 1 || n.Opened != 1 || n.Sent == 0 || n.Received == 0 {
		t.Errorf("counters %+v, want one connection each way, and bytes", n)
	}
}

func TestHTTPKeepsFieldsToTheirHop(t *testing.T) {
	saw := make(chan http.Header, 1)
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		saw <- r.Header
		h := w.Header()
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("X-End", "2")
		h["Content-Type"] = nil
		h["Date"] = []string{"Tue, 15 Nov 1994 08:12:31 GMT"}
		io.WriteString(w, "<html>")
	})
	s, address := webProxy(t, Options{})
	res, _ := dialRaw(t, address).ask(t, "GET", "GET http://"+web+`/ HTTP/1.1
Host: `+web+`
Connection: keep-alive, X-Mine
Proxy-Connection: keep-alive
Keep-Alive: 300
X-Mine: 1
TE: gzip
Proxy-Authorization: Basic YTpi
X-Forwarded-For: 192.0.2.1
Forwarded: for=192.0.2.1
Accept-Encoding: x

`)
	want := http.Header{
		"X-Forwarded-For": {"192.0.2.1"}, "Forwarded": {"for=192.0.2.1"}, "Accept-Encoding": {"x"},
		"Via": {"1.1 " + s.via},
	}
	if diff := cmp.Diff(want, <-saw); diff != "" {
		t.Errorf("fields the target saw (-want +got):\n%s", diff)
	}
	want = http.Header{
		"X-End": {"2"}, "Date": {"Tue, 15 Nov 1994 08:12:31 GMT"}, "Content-Length": {"6"}, "Via": {"1.1 " + s.via},
	}
	if diff := cmp.Diff(want, res.Header); diff != "" {
		t.Errorf("fields the client saw (-want +got):\n%s", diff)
	}
}

func TestHTTPRefusals(t *testing.T) {
	users := must[Users](t)(NewUsers(NewCredentials("anna", "se:cret")))
	const anna = "Proxy-Authorization: Basic YW5uYTpzZTpjcmV0\n" // anna:se:cret
	for _, c := range []struct {
		name    string
		request string
		users   Users
		status  int
		body    string
		reason  Reason
	}{
		{"a web browser without a proxy setting", "GET / HTTP/1.1\nHost: a\n\n", Users{}, 400,
			"this is an HTTP proxy and no web server: set it as the proxy of your client", ReasonProtocol},
		{"the whole server", "OPTIONS * HTTP/1.1\nHost: a\n\n", Users{}, 400,
			"this is an HTTP proxy and no web server: set it as the proxy of your client", ReasonProtocol},
		{"https in the open", "GET https://a.example/ HTTP/1.1\nHost: a.example\n\n", Users{}, 400,
			`scheme "https" cannot be proxied in plain text: use CONNECT`, ReasonProtocol},
		{"connect without port", "CONNECT a.example HTTP/1.1\nHost: a.example\n\n", Users{}, 400,
			`"a.example" is not HOST:PORT`, ReasonName},
		{"connect to port 0", "CONNECT a.example:0 HTTP/1.1\nHost: a.example\n\n", Users{}, 400,
			`"a.example:0" has no port: "0" is not a number from 1 to 65535`, ReasonName},
		{"no credential", "GET http://a.example/ HTTP/1.1\nHost: a.example\n\n", users, 407,
			"user name and password are required, or were wrong", ReasonAuth},
		{"no credential for connect", "CONNECT a.example:1 HTTP/1.1\nHost: a.example\n\n", users, 407,
			"user name and password are required, or were wrong", ReasonAuth},
		{"wrong password", "GET http://a.example/ HTTP/1.1\nHost: a.example\nProxy-Authorization: Basic YW5uYTpzZQ==\n\n", users, 407,
			"user name and password are required, or were wrong", ReasonAuth},
		{"another scheme", "GET http://a.example/ HTTP/1.1\nHost: a.example\nProxy-Authorization: Bearer YW5uYTpzZQ==\n\n", users, 407,
			"user name and password are required, or were wrong", ReasonAuth},
		{"right password, target refuses", "GET http://127.0.0.1:1/ HTTP/1.1\nHost: 127.0.0.1:1\n" + anna + "\n", users, 502,
			"dial tcp 127.0.0.1:1: connect: connection refused", ReasonRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, address := webProxy(t, Options{Users: c.users})
			res, body := dialRaw(t, address).ask(t, "GET", c.request)
			if want := fmt.Sprintf("stillwire: %s (%s)\n", c.body, c.reason); res.StatusCode != c.status || body != want {
				t.Errorf("%d %q, want %d %q", res.StatusCode, body, c.status, want)
			}
			if got, want := res.Header.Get("Proxy-Authenticate"), `Basic realm="stillwire", charset="UTF-8"`; c.status == 407 && got != want {
				t.Errorf("Proxy-Authenticate: %s, want %s", got, want)
			}
			if got, want := s.Counters().Refused, (map[Reason]uint64{c.reason: 1}); !cmp.Equal(got, want) {
				t.Errorf("refused %v, want %v", got, want)
			}
		})
	}
}

func TestHTTPTellsALoop(t *testing.T) {
	var address string
	s, address := webProxy(t, Options{Dialer: dialerFunc(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	})})
	res, body := dialRaw(t, address).ask(t, "GET", "GET http://a.example/ HTTP/1.1\nHost: a.example\n\n")
	// The inner request goes out in origin form, as to any target.
	if res.StatusCode != 400 || !strings.Contains(body, "no web server") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	res, body = dialRaw(t, address).ask(t, "GET", "GET http://a.example/ HTTP/1.1\nHost: a.example\nVia: 1.0 x, 1.1 "+s.via+"\n\n")
	if want := "stillwire: the request has passed this proxy before (loop)\n"; res.StatusCode != 508 || body != want {
		t.Errorf("%d %q, want 508 %q", res.StatusCode, body, want)
	}
}

func TestHTTPCountsDownMaxForwards(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, r.Header.Get("Max-Forwards"))
	})
	_, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	for _, w := range []struct{ request, want string }{
		{"OPTIONS http://" + web + " HTTP/1.1\nHost: x\nMax-Forwards: 2\n\n", "OPTIONS * 1"},
		{"OPTIONS http://" + web + "/a HTTP/1.1\nHost: x\nMax-Forwards: 0\n\n", ""},
		{"TRACE http://" + web + "/a HTTP/1.1\nHost: x\nMax-Forwards: 0\nCookie: c\nX-A: b\n\n",
			"TRACE http://" + web + "/a HTTP/1.1\r\nHost: " + web + "\r\nMax-Forwards: 0\r\nX-A: b\r\n\r\n"},
		{"GET http://" + web + "/a HTTP/1.1\nHost: x\nMax-Forwards: 0\n\n", "GET /a 0"},
	} {
		if _, body := c.ask(t, "GET", w.request); body != w.want {
			t.Errorf("%q: got %q, want %q", w.request, body, w.want)
		}
	}
}

func TestHTTPStreamsBothWays(t *testing.T) {
	// The target answers each line as it comes, while the request goes on.
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			fmt.Fprintf(w, "%s!\n", lines.Text())
			w.(http.Flusher).Flush()
		}
	})
	_, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	fmt.Fprintf(c, "POST http://%s/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na1\n\r\n", web)
	res, err := http.ReadResponse(c.r, &http.Request{Method: "POST"})
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(res.Body)
	for i := 1; i < 5; i++ {
		line, err := answers.ReadString('\n')
		if want := fmt.Sprintf("a%d!\n", i); line != want || err != nil {
			t.Fatalf("got %q and %v, want %q", line, err, want)
		}
		fmt.Fprintf(c, "3\r\na%d\n\r\n", i+1)
	}
	io.WriteString(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(answers); string(rest) != "a5!\n" || err != nil {
		t.Errorf("rest %q and %v", rest, err)
	}
}

func TestHTTPCarriesTrailersAndContinue(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		b, _ := io.ReadAll(r.Body) // asks for the body: 100 Continue
		fmt.Fprintf(w, "%s, trailer %s", b, r.Trailer.Get("X-Mine"))
		w.Header().Set("X-Sum", "42")
	})
	_, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	res, _ := c.ask(t, "POST", "POST http://"+web+"/ HTTP/1.1\nHost: x\nExpect: 100-continue\nTrailer: X-Mine\nTransfer-Encoding: chunked\n\n")
	if res.StatusCode != http.StatusContinue {
		t.Fatalf("status %d, want 100", res.StatusCode)
	}
	res, body := c.ask(t, "POST", "4\nbody\n0\nX-Mine: 41\n\n")
	if body != "body, trailer 41" || res.Trailer.Get("X-Sum") != "42" {
		t.Errorf("body %q, trailer %v", body, res.Trailer)
	}
}

// A target may say 100 when its body has been sent for already: the client, which was told to
// send it, is not told again.
func TestHTTPTargetThatAsksForTheBodyLate(t *testing.T) {
	tg := listenTarget(t, &host{})
	_, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	go fmt.Fprintf(c, "POST http://%s/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody", tg.address)
	far := tg.accept(t)
	r, err := http.ReadRequest(bufio.NewReader(far))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r.Body); err != nil || string(b) != "body" {
		t.Fatalf("target got %q and %v", b, err)
	}
	io.WriteString(far, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	for _, want := range []int{100, 103, 200} {
		if res, _ := c.response(t, "POST"); res.StatusCode != want {
			t.Fatalf("status %d, want %d", res.StatusCode, want)
		}
	}
}

func TestHTTPTargetThatRefusesTheBody(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too much", http.StatusRequestEntityTooLarge)
	})
	_, address := webProxy(t, Options{})
	res, body := dialRaw(t, address).ask(t, "PUT", "PUT http://"+web+"/ HTTP/1.1\nHost: x\nExpect: 100-continue\nContent-Length: 1000000\n\n")
	if res.StatusCode != 413 || body != "too much\n" {
		t.Errorf("%d %q, want 413, without a body asked for", res.StatusCode, body)
	}
}

// upgradeTarget changes to a protocol that echoes until the client ends, and says bye.
func upgradeTarget(t testing.TB) (address string) {
	return webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" || r.Header.Get("Connection") != "Upgrade" {
			http.Error(w, "no upgrade asked for", http.StatusUpgradeRequired)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-A: b\r\n\r\nhello ")
		io.Copy(c, rw)
		io.WriteString(c, " bye")
	})
}

func TestHTTPUpgradeHalfCloses(t *testing.T) {
	s, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	// A client in a hurry sends before the 101.
	fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly, ", upgradeTarget(t))
	res, err := http.ReadResponse(c.r, &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 101 || res.Header.Get("Upgrade") != "echo" || res.Header.Get("X-A") != "b" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	sendAll(c.Conn, []byte("late"))
	if got, err := io.ReadAll(c.r); string(got) != "hello early, late bye" || err != nil {
		t.Errorf("got %q and %v", got, err)
	}
	wantNoRefusals(t, s)
}

func wantNoRefusals(t testing.TB, s *Server) {
	t.Helper()
	eventually(t, "flow ends", func() bool { return s.Live() == 0 })
	if n := s.Counters(); len(n.Refused)+len(n.Cut) != 0 {
		t.Errorf("refused %v, cut %v, want none", n.Refused, n.Cut)
	}
}

func TestHTTPUpgradeThatTheTargetDeclines(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "plain") })
	_, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	for range 2 {
		res, body := c.ask(t, "GET", "GET http://"+web+"/ HTTP/1.1\nHost: x\nConnection: upgrade\nUpgrade: echo\n\n")
		if res.StatusCode != 200 || body != "plain" {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	}
}

func TestHTTPUpgradeThatNobodyAskedFor(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		c, _, _ := http.NewResponseController(w).Hijack()
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	})
	_, address := webProxy(t, Options{})
	res, body := dialRaw(t, address).ask(t, "GET", "GET http://"+web+"/ HTTP/1.1\nHost: x\n\n")
	if want := "stillwire: target changed to protocol \"echo\", asked for was \"\" (target)\n"; res.StatusCode != 502 || body != want {
		t.Errorf("%d %q, want %q", res.StatusCode, body, want)
	}
}

func TestHTTPBrokenResponseIsReset(t *testing.T) {
	for _, c := range []struct{ name, response string }{
		{"with a length", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"},
		{"in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tg := listenTarget(t, &host{})
			s, address := webProxy(t, Options{})
			client := dialRaw(t, address)
			// HTTP/1.0: the end of the connection would be the end of the response.
			fmt.Fprintf(client, "GET http://%s/ HTTP/1.0\r\n\r\n", tg.address)
			far := tg.accept(t)
			if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(far, c.response)
			if _, err := client.r.Peek(12); err != nil {
				t.Fatal(err)
			}
			far.Close()
			wantReset(t, "client", client)
			wantBooks := map[Reason]uint64{ReasonReset: 1}
			eventually(t, "flow ends", func() bool { return s.Live() == 0 })
			if got := s.Counters().Cut; !cmp.Equal(got, wantBooks) {
				t.Errorf("cut %v, want %v", got, wantBooks)
			}
		})
	}
}

func TestHTTPIdleRequest(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s, address := webProxy(t, Options{IdleTimeout: 50 * time.Millisecond})
	res, body := dialRaw(t, address).ask(t, "GET", "GET http://"+web+"/ HTTP/1.1\nHost: x\n\n")
	if want := "stillwire: idle for too long (idle)\n"; res.StatusCode != 504 || body != want {
		t.Errorf("%d %q, want 504 %q", res.StatusCode, body, want)
	}
	if got, want := s.Counters().Cut, (map[Reason]uint64{ReasonIdle: 1}); !cmp.Equal(got, want) {
		t.Errorf("cut %v, want %v", got, want)
	}
}

func TestHTTPClientsThatDawdle(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	for _, c := range []struct {
		name, say string
		o         Options
		reason    Reason
	}{
		{"in the head", "GET http://a.example/ HTTP/1.1\r\nHost:", Options{HandshakeTimeout: 50 * time.Millisecond}, ReasonHandshake},
		{"before the first byte", "", Options{HandshakeTimeout: 50 * time.Millisecond}, ReasonHandshake},
		{"in the body", "POST http://" + web + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf", Options{BodyTimeout: 50 * time.Millisecond}, ReasonHandshake},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, address := webProxy(t, c.o)
			client := dialProxy(t, address)
			io.WriteString(client, c.say)
			if _, err := io.Copy(io.Discard, client); err != nil && !isReset(err) {
				t.Errorf("client saw %v, want its connection to end", err)
			}
			eventually(t, "flow ends", func() bool { return s.Live() == 0 })
			if got, want := s.Counters().Refused, (map[Reason]uint64{c.reason: 1}); !cmp.Equal(got, want) {
				t.Errorf("refused %v, want %v", got, want)
			}
		})
	}
}

func TestHTTPHeadThatIsTooLong(t *testing.T) {
	s, address := webProxy(t, Options{MaxHeaderBytes: 1000})
	res, _ := dialRaw(t, address).ask(t, "GET", "GET http://a.example/ HTTP/1.1\nX: "+strings.Repeat("x", 10000)+"\n\n")
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", res.StatusCode)
	}
	eventually(t, "flow ends", func() bool { return s.Live() == 0 })
	if got, want := s.Counters().Refused, (map[Reason]uint64{ReasonProtocol: 1}); !cmp.Equal(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}

func TestHTTPUpdateReachesConnectionsThatAreKept(t *testing.T) {
	one := webTarget(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "one") })
	two := webTarget(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "two") })
	to := func(address string) Dialer {
		return dialerFunc(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		})
	}
	s, address := webProxy(t, Options{Dialer: to(one)})
	c := dialRaw(t, address)
	const request = "GET http://a.example/ HTTP/1.1\nHost: x\n\n"
	if _, body := c.ask(t, "GET", request); body != "one" {
		t.Errorf("got %q, want one", body)
	}
	s.Update(Options{Dialer: to(two)})
	if _, body := c.ask(t, "GET", request); body != "two" {
		t.Errorf("after another dialer: got %q, want two", body)
	}
	s.Update(Options{Dialer: to(two), Users: must[Users](t)(NewUsers(NewCredentials("a", "b")))})
	if res, _ := c.ask(t, "GET", request); res.StatusCode != 407 {
		t.Errorf("after users were set: status %d, want 407", res.StatusCode)
	}
}

func TestHTTPShutdownClosesClientsBetweenRequests(t *testing.T) {
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {})
	s, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	c.ask(t, "GET", "GET http://"+web+"/ HTTP/1.1\nHost: x\n\n")
	if err := s.Shutdown(deadline(t)); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	wantAll(t, "client", c, nil)
}

func TestHTTPConnectWithDataInTheSamePacket(t *testing.T) {
	for _, size := range []int{10, 10000} {
		tg := listenTarget(t, &host{})
		_, address := webProxy(t, Options{})
		c := dialRaw(t, address)
		early := noise(1, size)
		go c.Write(append(fmt.Appendf(nil, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", tg.address), early...))
		far := tg.accept(t)
		got := make([]byte, size)
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, early) {
			t.Errorf("%d bytes: target did not get what was sent early: %v", size, err)
		}
		c.Close()
	}
}

func TestHTTPClientThatSaysNothingIsNoRefusal(t *testing.T) {
	s, address := webProxy(t, Options{})
	dialProxy(t, address).Close()
	eventually(t, "flow ends", func() bool { n := s.Counters(); return n.Accepted == 1 && n.Live == 0 })
	wantNoRefusals(t, s)
}

func TestHTTPClientThatLeavesEndsItsRequest(t *testing.T) {
	ended := make(chan error, 1)
	arrived := make(chan struct{})
	web := webTarget(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		ended <- r.Context().Err()
	})
	s, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n", web)
	<-arrived
	c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("request at the target ended with %v", err)
	}
	eventually(t, "flow ends", func() bool { return s.Live() == 0 })
	if got, want := s.Counters().Refused, (map[Reason]uint64{ReasonCanceled: 1}); !cmp.Equal(got, want) {
		t.Errorf("refused %v, want %v", got, want)
	}
}

func TestHTTPUpgradedConnectionIsResetWithItsTarget(t *testing.T) {
	tg := listenTarget(t, &host{})
	s, address := webProxy(t, Options{})
	c := dialRaw(t, address)
	fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", tg.address)
	far := tg.accept(t)
	if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
		t.Fatal(err)
	}
	io.WriteString(far, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: Echo\r\n\r\n")
	if _, err := http.ReadResponse(c.r, &http.Request{Method: "GET"}); err != nil {
		t.Fatal(err)
	}
	pingPong(t, c, far)
	Abort(far)
	wantReset(t, "client", c)
	eventually(t, "flow ends", func() bool { return s.Live() == 0 })
	if got, want := s.Counters().Cut, (map[Reason]uint64{ReasonReset: 1}); !cmp.Equal(got, want) {
		t.Errorf("cut %v, want %v", got, want)
	}
}

// Two lengths are how a request is smuggled: what follows on the connection is not believed
// (RFC 9112, section 6.1).
func TestConnectionIsClosedAfterARequestOfTwoLengths(t *testing.T) {
	for _, tt := range []struct {
		name, fields string
		closed       bool
	}{
		{"a length", "Content-Length: 3\r\n\r\nabc", false},
		{"chunked", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false},
		{"both", "content-LENGTH: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, address := webProxy(t, Options{})
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
			defer web.Close()
			c := dialProxy(t, address)
			// In two pieces, cut within the name of the field.
			request := "POST " + web.URL + "/ HTTP/1.1\r\nHost: x\r\n" + tt.fields
			io.WriteString(c, request[:len(request)-len(tt.fields)+8])
			io.WriteString(c, request[len(request)-len(tt.fields)+8:])
			in := bufio.NewReader(c)
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(res.Body); string(b) != "abc" || err != nil {
				t.Errorf("answer %q, %v", b, err)
			}
			if res.Close != tt.closed {
				t.Errorf("the response says close: %v, want %v", res.Close, tt.closed)
			}
			if tt.closed {
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("after the response comes %v, want the end", err)
				}
			}
		})
	}
}
