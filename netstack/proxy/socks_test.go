package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSOCKSConversations(t *testing.T) {
	users := must[Users](t)(NewUsers(NewCredentials("anna", "secret"), NewCredentials("bert", "other")))
	tg := listenTarget(t, &host{})
	dest := string(wireAddress(tg.address))
	for _, c := range []struct {
		name   string
		users  Users
		say    string
		want   string // all that the client gets until the end
		reason Reason
	}{
		{"SOCKS4", Users{}, "\x04\x01\x00\x50\x7f\x00\x00\x01\x00", "\x00\x5b\x00\x00\x00\x00\x00\x00", ReasonSOCKS4},
		{"HTTP", Users{}, "GET / HTTP/1.1\r\n\r\n", "", ReasonProtocol},
		{"ends in the greeting", Users{}, "\x05\x02\x00", "", ReasonProtocol},
		{"no method", Users{}, "\x05\x00", "\x05\xff", ReasonAuth},
		{"only a password, nobody wants one", Users{}, "\x05\x01\x02", "\x05\xff", ReasonAuth},
		{"no password, and one is wanted", users, "\x05\x01\x00", "\x05\xff", ReasonAuth},
		{"GSSAPI", users, "\x05\x02\x00\x01", "\x05\xff", ReasonAuth},
		{"wrong password", users, "\x05\x01\x02\x01\x04anna\x05other", "\x05\x02\x01\x01", ReasonAuth},
		{"another's password", users, "\x05\x01\x02\x01\x04bert\x06secret", "\x05\x02\x01\x01", ReasonAuth},
		{"no such user", users, "\x05\x01\x02\x01\x04carl\x06secret", "\x05\x02\x01\x01", ReasonAuth},
		{"no user name", users, "\x05\x01\x02\x01\x00\x00", "\x05\x02\x01\x01", ReasonAuth},
		{"another version of authentication", users, "\x05\x01\x02\x05\x04anna\x06secret", "\x05\x02", ReasonProtocol},
		{"BIND", Users{}, "\x05\x01\x00\x05\x02\x00" + dest, "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", ReasonCommand},
		{"UDP ASSOCIATE without sockets for it", Users{}, "\x05\x01\x00\x05\x03\x00" + dest, "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", ReasonCommand},
		{"a command that is none", Users{}, "\x05\x01\x00\x05\x09\x00" + dest, "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", ReasonCommand},
		{"an address type that is none", Users{}, "\x05\x01\x00\x05\x01\x00\x02abcd\x00\x50", "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00", ReasonAddressType},
		{"an empty name", Users{}, "\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50", "\x05\x00\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00", ReasonName},
		{"a name with a port in it", Users{}, "\x05\x01\x00\x05\x01\x00\x03\x03a:1\x00\x50", "\x05\x00\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00", ReasonName},
		{"a name with a line end in it", Users{}, "\x05\x01\x00\x05\x01\x00\x03\x03a\nb\x00\x50", "\x05\x00\x05\x04\x00\x01\x00\x00\x00\x00\x00\x00", ReasonName},
		{"another version of the request", Users{}, "\x05\x01\x00\x04\x01\x00" + dest, "\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00", ReasonProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := must[*Server](t)(NewSOCKS5(Options{Dialer: new(net.Dialer), Users: c.users}))
			client := dialProxy(t, serve(t, s))
			sendAll(client, []byte(c.say))
			wantAll(t, "client", client, []byte(c.want))
			wantBooks(t, s, Counters{Accepted: 1, Refused: map[Reason]uint64{c.reason: 1}})
		})
	}
}

func TestSOCKSClientThatSaysNothingIsNoRefusal(t *testing.T) {
	for _, p := range paths()[:5] {
		s := must[*Server](t)(p.make(Options{Dialer: new(net.Dialer)}, ""))
		dialProxy(t, serve(t, s)).Close()
		eventually(t, "flow ends", func() bool { n := s.Counters(); return n.Accepted == 1 && n.Live == 0 })
		wantNoRefusals(t, s)
	}
}

func TestSOCKSClientThatDawdles(t *testing.T) {
	for _, make := range []func(Options) (*Server, error){NewSOCKS5, NewMixed} {
		for _, say := range []string{"", "\x05", "\x05\x01\x00", "\x05\x01\x00\x05\x01"} {
			s := must[*Server](t)(make(Options{Dialer: new(net.Dialer), HandshakeTimeout: 20 * time.Millisecond}))
			client := dialProxy(t, serve(t, s))
			client.Write([]byte(say))
			if _, err := io.Copy(io.Discard, client); err != nil {
				t.Errorf("%q: client saw %v, want its connection to end", say, err)
			}
			client.Close()
			wantBooks(t, s, Counters{Accepted: 1, Refused: map[Reason]uint64{ReasonHandshake: 1}})
		}
	}
}

func TestSOCKSHandsNamesToTheDialer(t *testing.T) {
	for _, c := range []struct{ client, dialer string }{
		{"db.internal:5432", "db.internal:5432"},
		{"_xmpp.Example.:5222", "_xmpp.Example.:5222"},
		{"10.0.0.1:80", "10.0.0.1:80"},
		{"[fd00::1]:80", "[fd00::1]:80"},
		{"[::ffff:10.0.0.1]:80", "10.0.0.1:80"},
	} {
		asked := make(chan string, 1)
		s := must[*Server](t)(NewSOCKS5(Options{Dialer: dialerFunc(func(_ context.Context, network, address string) (net.Conn, error) {
			asked <- network + " " + address
			return nil, io.EOF
		})}))
		socksConnect(dialProxy(t, serve(t, s)), "", "", c.client)
		if got := <-asked; got != "tcp "+c.dialer {
			t.Errorf("client asks for %s: dialer is asked for %s, want tcp %s", c.client, got, c.dialer)
		}
	}
}

func TestSOCKSLiteralAddressInTheNameField(t *testing.T) {
	for name, want := range map[string]string{"10.0.0.1": "10.0.0.1:80", "fd00::1": "[fd00::1]:80", "[fd00::1]": "[fd00::1]:80"} {
		d, err := namedDestination(name, 80)
		if err != nil || d.String() != want {
			t.Errorf("%s: %s and %v, want %s", name, d, err, want)
		}
	}
}

func TestSOCKSReplyTellsTheBoundAddress(t *testing.T) {
	tg := listenTarget(t, &host{})
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: new(net.Dialer)}))
	_, bound, err := socksRequest(dialProxy(t, serve(t, s)), "", "", commandConnect, tg.address)
	if far := tg.accept(t); err != nil || bound.String() != far.RemoteAddr().String() {
		t.Errorf("bound to %s and %v, target sees %s", bound, err, far.RemoteAddr())
	}
}

func TestSOCKSDataInTheSamePacketAsTheRequest(t *testing.T) {
	tg := listenTarget(t, &host{})
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: new(net.Dialer)}))
	c := dialProxy(t, serve(t, s))
	early := noise(1, 5000)
	c.Write(append([]byte("\x05\x01\x00\x05\x01\x00"+string(wireAddress(tg.address))), early...))
	far := tg.accept(t)
	got := make([]byte, len(early))
	if _, err := io.ReadFull(far, got); err != nil || !cmp.Equal(got, early) {
		t.Errorf("target did not get what was sent early: %v", err)
	}
}

func TestSOCKSOnAUnixSocket(t *testing.T) {
	tg := listenTarget(t, &host{})
	ln := must[net.Listener](t)(net.Listen("unix", t.TempDir()+"/s"))
	s := must[*Server](t)(NewSOCKS5(Options{Dialer: new(net.Dialer), Packets: &host{}}))
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), ln) }()
	defer func() { s.Shutdown(deadline(t)); <-done }()
	c := must[net.Conn](t)(net.Dial("unix", ln.Addr().String()))
	defer c.Close()
	must[net.Conn](t)(socksConnect(c, "", "", tg.address))
	far := tg.accept(t)
	pingPong(t, c, far)
	far.Close()
	u := must[net.Conn](t)(net.Dial("unix", ln.Addr().String()))
	defer u.Close()
	_, bound, err := socksRequest(u, "", "", commandAssociate, "0.0.0.0:0")
	if err != nil || !bound.Addr().IsLoopback() {
		t.Errorf("associated to %s and %v, want loopback", bound, err)
	}
}

func TestForwardKeepsWhatTheClientSaidBeforeTheTargetAnswered(t *testing.T) {
	tg := listenTarget(t, &host{})
	ready := make(chan struct{})
	s := must[*Server](t)(NewTCPForward(tg.address, Options{Dialer: dialerFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
		<-ready
		return new(net.Dialer).DialContext(ctx, network, address)
	})}))
	c := dialProxy(t, serve(t, s))
	question := noise(1, 100000)
	go func() { sendAll(c, question); close(ready) }() // all of it, and its end
	far := tg.accept(t)
	wantAll(t, "target", far, question)
	sendAll(far, []byte("answer"))
	wantAll(t, "client", c, []byte("answer"))
}

func TestForwardToAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/s"
	ln := must[net.Listener](t)(net.Listen("unix", path))
	defer ln.Close()
	s := must[*Server](t)(NewTCPForward("unix:"+path, Options{Dialer: new(net.Dialer)}))
	c := dialProxy(t, serve(t, s))
	far := must[net.Conn](t)(ln.Accept())
	defer far.Close()
	pingPong(t, c, far)
}

func TestForwardTargetsThatAreNone(t *testing.T) {
	const remedy = ": write 10.0.0.5:5432, [fd00::5]:5432 or name.example:5432"
	for target, want := range map[string]string{
		"":        `target "" is not HOST:PORT` + remedy,
		"a":       `target "a" is not HOST:PORT` + remedy,
		"a:":      `target "a:" has no port: "" is not a number from 1 to 65535` + remedy,
		"a:0":     `target "a:0" has no port: "0" is not a number from 1 to 65535` + remedy,
		"a:http":  `target "a:http" has no port: "http" is not a number from 1 to 65535` + remedy,
		"a b:1":   `target "a b" is neither a host name nor an IP address` + remedy,
		":1":      `target "" is neither a host name nor an IP address` + remedy,
		"::1:1":   `target "::1:1" is not HOST:PORT` + remedy,
		"unix:":   `target "unix:" has no path: write unix:/path`,
		"a:1":     "",
		"[::1]:1": "",
		"unix:/a": "",
	} {
		_, err := NewTCPForward(target, Options{Dialer: new(net.Dialer)})
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%q: %s, want %s", target, got, want)
		}
	}
	if _, err := NewTCPForward("a:1", Options{}); fmt.Sprint(err) != "tcp forward: proxy options have no Dialer: set one" {
		t.Errorf("without dialer: %v", err)
	}
}

func FuzzSOCKSRequest(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x03\x09localhost\x00\x50"))
	f.Add([]byte("\x05\x03\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x03\x03a:b\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest := &sliceReader{b}
		_, d, err := readRequest(rest)
		if err != nil {
			if replyFor(socksReason(err)) == replySucceeded {
				t.Errorf("%v is answered by success", err)
			}
			return
		}
		// What was understood is HOST:PORT for a dialer, and means the same when read again.
		again, err := hostPort(d.String(), 0)
		if d.port == 0 {
			return
		}
		if err != nil || again != d {
			t.Errorf("%q is read as %q and %v", d, again, err)
		}
	})
}

func FuzzSOCKSGreeting(f *testing.F) {
	f.Add([]byte("\x05\x02\x00\x02\x01\x04anna\x06secret"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest := &sliceReader{b}
		if _, err := readMethods(rest); err != nil {
			return
		}
		user, pass, err := readUserPass(rest)
		if err == nil && len(user)+len(pass) > len(b) {
			t.Errorf("%d bytes hold user %q and a password of %d bytes", len(b), user, len(pass))
		}
	})
}

func FuzzSOCKSDatagram(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x7f\x00\x00\x01\x00\x50data"))
	f.Add([]byte("\x00\x00\x01\x01\x7f\x00\x00\x01\x00\x50data"))
	f.Add([]byte("\x00\x00\x00\x03\x01a\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, payload, err := parseDatagram(b)
		if err != nil || !d.addr.IsValid() {
			return
		}
		// Written again it is the same, but for IPv4 that came in IPv6 or as a name.
		again := append(appendDatagramHeader(nil, d.addrPort()), payload...)
		d2, payload2, err := parseDatagram(again)
		if err != nil || d2 != d || string(payload2) != string(payload) {
			t.Errorf("%q is %q when written and read again: %v", d, d2, err)
		}
	})
}

func TestLocalAddressOfClients(t *testing.T) {
	if got := addrPortOf(&net.UnixAddr{}); got != (netip.AddrPort{}) {
		t.Errorf("unix address is %s", got)
	}
}
