package proxy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

const planted = "pa55phrase-that-must-not-show"

func TestCredentialsDoNotPrint(t *testing.T) {
	c := NewCredentials("anna", planted)
	users := must[Users](t)(NewUsers(c))
	o := Options{Users: users}
	hidden := struct {
		c Credentials
		u Users
		o *Options
	}{c, users, &o}
	for _, v := range []any{c, &c, users, &users, o, hidden, []Credentials{c}, map[string]Users{"a": users}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			text := fmt.Sprintf(verb, v)
			if strings.Contains(text, planted) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", planted)) {
				t.Errorf("%s of %T prints the password: %s", verb, v, text)
			}
		}
		if b, _ := json.Marshal(v); strings.Contains(string(b), planted) {
			t.Errorf("json of %T holds the password: %s", v, b)
		}
	}
	if got := fmt.Sprintf("%v, %v, %v", c, users, Users{}); got != "anna:(redacted), 1 user, 0 users" {
		t.Errorf("they print as %s", got)
	}
}

func TestUsersCheck(t *testing.T) {
	users := must[Users](t)(NewUsers(NewCredentials("anna", "secret"), NewCredentials("bert", "other")))
	for _, c := range []struct {
		user, pass string
		want       bool
	}{
		{"anna", "secret", true}, {"bert", "other", true},
		{"anna", "other", false}, {"bert", "secret", false}, {"carl", "secret", false},
		{"anna", "", false}, {"", "", false}, {"Anna", "secret", false}, {"anna", "secret ", false},
	} {
		if got := users.Check(c.user, c.pass); got != c.want {
			t.Errorf("Check(%q, %q) = %t", c.user, c.pass, got)
		}
	}
	if (Users{}).Check("", "") {
		t.Error("nobody's users let somebody in")
	}
}

func TestUsersEqual(t *testing.T) {
	make := func(all ...string) Users {
		var cs []Credentials
		for _, s := range all {
			user, pass, _ := strings.Cut(s, ":")
			cs = append(cs, NewCredentials(user, pass))
		}
		return must[Users](t)(NewUsers(cs...))
	}
	one := make("a:1", "b:2")
	for _, c := range []struct {
		name  string
		other Users
		want  bool
	}{
		{"the same, read again", make("a:1", "b:2"), true},
		{"in another order", make("b:2", "a:1"), true},
		{"another password", make("a:1", "b:3"), false},
		{"another user", make("a:1", "c:2"), false},
		{"one fewer", make("a:1"), false},
		{"none", Users{}, false},
	} {
		if got := one.Equal(c.other); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if !(Users{}).Equal(Users{}) {
		t.Error("nobody is not nobody")
	}
}

func TestParseUsers(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ name, file, want string }{
		{"several, with comments", "# who may\n\nanna:secret\r\nbert:o:t:h:er\n", "anna bert"},
		{"byte-order mark", "\ufeffanna:secret", "anna"},
		{"password with letters beyond ASCII", "ännä:geheim€", "ännä"},
		{"empty", "", "users.txt: has no users: write a line USER:PASSWORD for each"},
		{"only comments", "# a:b\n", "users.txt: has no users: write a line USER:PASSWORD for each"},
		{"no colon", "anna:secret\n" + planted + "\n", "users.txt:2: has no colon: write USER:PASSWORD"},
		{"no user", ":" + planted, "users.txt:1: user name is empty"},
		{"no password", "anna:", `users.txt:1: password of user "anna" is empty`},
		{"space before the password", "anna: " + planted, "users.txt:1: user name or password begins or ends with a space: take it away"},
		{"space after the user", "anna :" + planted, "users.txt:1: user name or password begins or ends with a space: take it away"},
		{"tab in the password", "anna:" + planted + "\tx", "users.txt:1: user name or password holds a control character"},
		{"too long", "anna:" + long, "users.txt:1: user name or password is longer than the 255 bytes that RFC 1929 allows"},
		{"twice", "anna:secret\n\nanna:" + planted, `users.txt:3: user "anna" is in line 1 too: keep one of them`},
		{"no file of users at all", strings.Repeat("x", maxUsersFile+1), "users.txt: is longer than 1048576 bytes: is it a file of users?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			users, err := ParseUsers("users.txt", strings.NewReader(c.file))
			got := strings.Join(users.Names(), " ")
			if err != nil {
				got = err.Error()
			}
			if got != c.want || strings.Contains(got, planted) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestLoadUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("anna:se:cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if users, err := LoadUsers(path); err != nil || !users.Check("anna", "se:cret") {
		t.Errorf("%v and %v", users, err)
	}
	if _, err := LoadUsers(path + "x"); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("error %v does not name the file", err)
	}
}

func FuzzParseUsers(f *testing.F) {
	f.Add("anna:secret\nbert:o:t\n")
	f.Add("# a\n\n\ufeff:\x00")
	f.Fuzz(func(t *testing.T, file string) {
		users, err := ParseUsers("f", strings.NewReader(file))
		if err == nil && (users.IsZero() || len(users.Names()) == 0) {
			t.Error("nobody, and no error: everybody would be let in")
		}
		for _, line := range strings.Split(file, "\n") {
			_, pass, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
			if ok && len(pass) > 20 && err != nil && strings.Contains(err.Error(), pass) {
				t.Errorf("error holds a password: %v", err)
			}
		}
	})
}

func TestCheckListen(t *testing.T) {
	for _, fine := range []string{
		"127.0.0.1:1080", "127.1.2.3:1080", "[::1]:1080", "[0:0:0:0:0:0:0:1]:1080", "[::ffff:127.0.0.1]:1080", "[::ffff:7f00:1]:1080",
		"localhost:1080", "LocalHost:1080", "localhost.:0", "unix:/run/s", "/run/s", "./s", "unix:s",
	} {
		if err := CheckListen(fine, false, false); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	for _, wide := range []string{
		":1080", "0.0.0.0:1080", "[::]:1080", "*:1080", "10.0.0.1:1080", "192.168.1.1:1080", "[fe80::1%lo]:1080", "[::ffff:10.0.0.1]:1080",
		"localhost.example:1080", "ip6-localhost:1080", "127.1:1080", "2130706433:1080", "0x7f.1:1080", "128.0.0.1:1080", "[::2]:1080",
	} {
		want := fmt.Sprintf("listen address %q can be reached by others, who could then use the tunnel: listen on 127.0.0.1:1080, ask for a user and password, or say that it shall be open", wide)
		if err := CheckListen(wide, false, false); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", wide, err, want)
		}
		if err := CheckListen(wide, true, false); err != nil {
			t.Errorf("%s with a credential: %v", wide, err)
		}
		if err := CheckListen(wide, false, true); err != nil {
			t.Errorf("%s when open: %v", wide, err)
		}
	}
	for _, bad := range []string{"", "1080", "127.0.0.1", "::1:1080"} {
		want := fmt.Sprintf("listen address %q is not HOST:PORT: write 127.0.0.1:1080, [::1]:1080 or unix:/path", bad)
		if err := CheckListen(bad, true, true); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

func TestReasonsAreAClosedSet(t *testing.T) {
	all := Reasons()
	if len(all) > len(byReason{}) {
		t.Errorf("%d reasons do not fit into %d counters", len(all), len(byReason{}))
	}
	seen := make(map[Reason]bool)
	var c counts
	for _, r := range all {
		if seen[r] || r == "" {
			t.Errorf("reason %q is there twice, or empty", r)
		}
		seen[r] = true
		c.refused.add(r)
	}
	got := c.snapshot(0).Refused
	want := make(map[Reason]uint64)
	for _, r := range all {
		want[r] = 1
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestLogsOfFlowsAreAtDebugAndHoldNoPassword(t *testing.T) {
	tg := listenTarget(t, &host{})
	var log lockedBuffer
	for _, p := range paths() {
		s := must[*Server](t)(p.make(Options{Dialer: &host{}, Log: zerolog.New(&log)}, tg.address))
		c, err := p.open(dialProxy(t, serve(t, s)), tg.address)
		if err != nil {
			t.Fatal(err)
		}
		far := tg.accept(t)
		pingPong(t, c, far)
		c.Close()
		far.Close()
		eventually(t, "flow ends", func() bool { return s.Live() == 0 })
	}
	users := must[Users](t)(NewUsers(NewCredentials("anna", planted)))
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: &host{}, Users: users, Log: zerolog.New(&log)}))
	address := serve(t, s)
	socksConnect(dialProxy(t, address), "anna", planted, tg.address)
	socksConnect(dialProxy(t, address), "anna", planted+"x", tg.address)
	eventually(t, "refusal is logged", func() bool { return strings.Contains(log.String(), "flow refused") })
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		level := `"level":"debug"`
		if strings.Contains(line, "flows are refused") {
			level = `"level":"warn"`
		}
		if !strings.Contains(line, level) || strings.Contains(line, planted) {
			t.Errorf("log line %s", line)
		}
	}
}
