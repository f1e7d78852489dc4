package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// curl runs curl with no settings but these, and returns what it prints.
func curl(t testing.TB, args ...string) (out string, err error) {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Fatalf("curl is not installed: apt-get install curl (%v)", err)
	}
	cmd := exec.CommandContext(deadline(t), path, append([]string{"-q", "-sS", "--noproxy", ""}, args...)...)
	cmd.Env = []string{}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func TestCurlThroughEveryProxy(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s %d", r.Method, r.Host, r.URL.Path, len(b))
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	// A name that only the dialer knows, for it to be shown who resolves.
	d := dialerFunc(namesTo(map[string]string{"web.internal:80": plain.Listener.Addr().String(), "web.internal:443": secure.Listener.Addr().String()}))
	users := must[Users](t)(NewUsers(NewCredentials("anna", "se:cret")))
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, noise(1, mebi), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		make func(Options) (*Server, error)
		flag []string
	}{
		{"socks5", NewSOCKS5, []string{"--proxy", "socks5h://PROXY"}},
		{"socks5-hostname", NewSOCKS5, []string{"--socks5-hostname", "PROXY"}},
		{"http", NewHTTP, []string{"--proxy", "http://PROXY"}},
		{"http with connect for all", NewHTTP, []string{"--proxytunnel", "--proxy", "http://PROXY"}},
		{"mixed, socks5", NewMixed, []string{"--proxy", "socks5h://PROXY"}},
		{"mixed, http", NewMixed, []string{"--proxy", "http://PROXY"}},
	} {
		for _, u := range []struct {
			name  string
			users Users
			flag  []string
		}{{"open", Users{}, nil}, {"with user", users, []string{"--proxy-user", "anna:se:cret"}}} {
			t.Run(c.name+"/"+u.name, func(t *testing.T) {
				s := must[*Server](t)(c.make(Options{Dialer: d, Users: u.users}))
				address := serve(t, s)
				args := append([]string(nil), u.flag...)
				for _, a := range c.flag {
					args = append(args, strings.ReplaceAll(a, "PROXY", address))
				}
				for _, r := range []struct {
					args []string
					want string
				}{
					{[]string{"http://web.internal/a", "http://web.internal/b"}, "GET web.internal/a 0GET web.internal/b 0"},
					{[]string{"-k", "https://web.internal/a"}, "GET web.internal/a 0"},
					{[]string{"-X", "PUT", "--data-binary", "@" + upload, "http://web.internal/up"}, "PUT web.internal/up 1048576"},
					{[]string{"-k", "--data-binary", "@" + upload, "https://web.internal/up"}, "POST web.internal/up 1048576"},
					{[]string{"-H", "Expect: 100-continue", "-T", upload, "http://web.internal/up"}, "PUT web.internal/up 1048576"},
				} {
					if got, err := curl(t, append(args, r.args...)...); got != r.want || err != nil {
						t.Errorf("curl %v: %q and %v, want %q", r.args, got, err, r.want)
					}
				}
				if n := s.Counters(); len(n.Refused) != 0 {
					t.Errorf("refused %v", n.Refused)
				}
			})
		}
	}
}

// TestCurlSaysWhy holds the refusals to what people will read.
func TestCurlSaysWhy(t *testing.T) {
	users := must[Users](t)(NewUsers(NewCredentials("anna", "secret")))
	for _, c := range []struct {
		name string
		make func(Options) (*Server, error)
		o    Options
		args []string
		want string
	}{
		{"socks5, refused", NewSOCKS5, Options{}, []string{"--proxy", "socks5h://PROXY", "http://127.0.0.1:1/"}, "Can't complete SOCKS5 connection to 127.0.0.1. (5)"},
		{"socks5, wrong password", NewSOCKS5, Options{Users: users}, []string{"--proxy", "socks5h://anna:x@PROXY", "http://127.0.0.1:1/"}, "User was rejected by the SOCKS5 server (1 1)."},
		{"socks4", NewSOCKS5, Options{}, []string{"--proxy", "socks4a://PROXY", "http://127.0.0.1:1/"}, "Can't complete SOCKS4 connection to 0.0.0.0:0. (91), request rejected or failed."},
		{"http, refused", NewHTTP, Options{}, []string{"--proxy", "http://PROXY", "http://127.0.0.1:1/"}, "stillwire: dial tcp 127.0.0.1:1: connect: connection refused (refused)"},
		{"http, connect refused", NewHTTP, Options{}, []string{"--proxy", "http://PROXY", "https://127.0.0.1:1/"}, "CONNECT tunnel failed, response 502"},
		{"http, no password", NewHTTP, Options{Users: users}, []string{"--proxy", "http://PROXY", "http://127.0.0.1:1/"}, "stillwire: user name and password are required, or were wrong (auth)"},
		{"http, no proxy but a web server", NewHTTP, Options{}, []string{"http://PROXY/"}, "stillwire: this is an HTTP proxy and no web server: set it as the proxy of your client (protocol)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Dialer = new(net.Dialer)
			address := serve(t, must[*Server](t)(c.make(c.o)))
			for i := range c.args {
				c.args[i] = strings.ReplaceAll(c.args[i], "PROXY", address)
			}
			if got, _ := curl(t, c.args...); !strings.Contains(got, c.want) {
				t.Errorf("curl says %q, want %q in it", got, c.want)
			}
		})
	}
}
