package device

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device/devicetest"
)

// socketNodes are two nodes that talk, the first with a UAPI socket.
func socketNodes(t *testing.T, name string) (a, b *node, path string) {
	t.Helper()
	net := devicetest.NewNetwork(devicetest.Options{})
	t.Cleanup(net.Close)
	a = newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.Name = name })
	b = newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
	b.apply(t, b.config(a.asPeer("", 0)))
	a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 25*time.Second)))
	if err := a.Reach(t.Context(), b.addr); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return a.peerState(t, b).TransmitBytes == 148+32 }) // initiation and keepalive
	dir := t.TempDir()
	if name != "wg0" {
		dir = UAPIDir // where wg(8) looks
	}
	if err := a.ListenUAPI(dir); err != nil {
		t.Fatal(err)
	}
	return a, b, filepath.Join(dir, name+".sock")
}

// until waits for a condition in real time.
func until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the condition never came")
		}
	}
}

func ask(t *testing.T, path, request string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	c.(*net.UnixConn).CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUAPIGetIsWhatTheDeviceIs(t *testing.T) {
	a, b, path := socketNodes(t, "wg0")
	text := ask(t, path, "get=1\n\n")
	body, ok := strings.CutSuffix(text, "errno=0\n\n")
	if !ok {
		t.Fatalf("answer %q", text)
	}
	got, err := parseUAPIGet(body)
	if err != nil {
		t.Fatal(err)
	}
	want, err := a.State()
	if err != nil {
		t.Fatal(err)
	}
	for i := range want.Peers { // these are not in the protocol
		want.Peers[i].Declared, want.Peers[i].Applied, want.Peers[i].Handshakes = Endpoint{}, got.Peers[i].Applied, 0
	}
	if diff := cmp.Diff(want, got, sameState()); diff != "" {
		t.Errorf("state (-device +socket):\n%s", diff)
	}
	if got.Peers[0].LastHandshake.IsZero() || got.Peers[0].PublicKey != b.key.Public() {
		t.Errorf("peer %+v", got.Peers[0])
	}
	secret := a.key.secret.value()
	if !strings.Contains(text, hex.EncodeToString(secret[:])) {
		t.Error("the owner does not get the private key")
	}
	if d, _ := a.uapiGet(false); strings.Contains(string(d), hex.EncodeToString(secret[:])) || strings.Contains(string(d), "preshared_key") {
		t.Error("a stranger gets a key")
	}
}

func TestUAPISetMakesTheLeastChange(t *testing.T) {
	a, b, path := socketNodes(t, "wg0")
	other := testPeer(80)
	key := "public_key=" + b.key.Public().Hex() + "\n"
	for _, tt := range []struct {
		name, request string
		want          []string
	}{
		{"peer replaced by itself", "replace_peers=true\n" + key + "replace_allowed_ips=true\nallowed_ip=10.9.0.2/32\nendpoint=192.0.2.2:51820\npersistent_keepalive_interval=25\n", nil},
		{"same port again", "listen_port=51820\n", nil},
		{"keepalive", key + "persistent_keepalive_interval=20\n", []string{"keepalive: 25s -> 20s [UAPI socket]"}},
		{"prefix added and removed", key + "allowed_ip=10.1.0.0/16\nallowed_ip=-10.1.0.0/16\n", nil},
		{"peer added", "public_key=" + other.Hex() + "\nallowed_ip=10.3.0.0/16\n", []string{"peer: (none) -> endpoint=(none) allowed_ips: 10.3.0.0/16 [UAPI socket]"}},
		{"prefix taken from another peer", key + "allowed_ip=10.3.0.0/16\n", []string{"allowed_ips: 10.3.0.0/16 of peer " + other.Short() + " -> 10.3.0.0/16 [UAPI socket]"}},
		{"unknown peer with update_only", "public_key=" + testPeer(88).Hex() + "\nupdate_only=true\nallowed_ip=10.4.0.0/16\n", nil},
		{"peer removed", "public_key=" + other.Hex() + "\nremove=true\n", []string{"peer: endpoint=(none) allowed_ips: -> (none) [UAPI socket]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a.mu.Lock()
			a.changes = nil
			a.mu.Unlock()
			if got := ask(t, path, "set=1\n"+tt.request+"\n"); got != "errno=0\n\n" {
				t.Fatalf("answer %q", got)
			}
			if diff := cmp.Diff(tt.want, a.told()); diff != "" {
				t.Errorf("changes told (-want +got):\n%s", diff)
			}
		})
	}
	if n := a.log.count("Updating endpoint"); n != 1 {
		t.Errorf("%d endpoint writes, want the first alone", n)
	}
}

func TestUAPIRefusesWhatIsWrong(t *testing.T) {
	a, b, path := socketNodes(t, "wg0")
	before := a.operations()
	key := "public_key=" + b.key.Public().Hex() + "\n"
	for _, request := range []string{
		"fwmark=7\nlisten_port=65536\n", "nonsense\n", "public_key=00\n", key + "endpoint=nowhere\n", key + "allowed_ip=10.0.0.0/33\n",
		key + "replace_allowed_ips=false\n", key + "protocol_version=2\n", key + "persistent_keepalive_interval=-1\n", "private_key=zz\n",
		"public_key=" + a.key.Public().Hex() + "\nallowed_ip=10.7.0.0/16\n",
	} {
		if got := ask(t, path, "set=1\n"+request+"\n"); got != "errno=-22\n\n" {
			t.Errorf("answer to %q is %q", request, got)
		}
	}
	if got := ask(t, path, "put=1\n\n"); got != "errno=-22\n\n" {
		t.Errorf("answer to an unknown operation is %q", got)
	}
	if after := a.operations(); after != before {
		t.Errorf("%d operations by refused requests", after-before)
	}
}

// A key in the wrong place is still a secret.
func TestUAPIRefusalTellsNoKey(t *testing.T) {
	a, b, path := socketNodes(t, "wg0")
	const key = "504c2b6f0a77d5a4c3e1f2908b7a6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b"
	for _, request := range []string{
		key + "=x\n", "x=" + key + "\n", key + "\n", "private_key=" + key + "0\n", "listen_port=" + key + "\n",
		"public_key=" + b.key.Public().Hex() + "\n" + key + "=x\n",
		"public_key=" + b.key.Public().Hex() + "\npreshared_key=x" + key + "\n",
		"public_key=" + b.key.Public().Hex() + "\nendpoint=" + key + "\n",
	} {
		if got := ask(t, path, "set=1\n"+request+"\n"); got != "errno=-22\n\n" {
			t.Errorf("answer to %q is %q", request, got)
		}
	}
	ask(t, path, key+"=1\n\n")
	if a.log.count("UAPI request refused") != 9 || a.log.count(key[:8]) > 0 {
		t.Errorf("log:\n%s", a.log.b.String())
	}
}

func TestUAPISocketIsPrivateAndSingle(t *testing.T) {
	a, _, path := socketNodes(t, "wg0")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := a.ListenUAPI(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a second socket: %v", err)
	}
	a.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close() // as a killed process leaves it
	l, err := listenUnix(path)
	if err != nil {
		t.Fatalf("a stale socket is not taken over: %v", err)
	}
	l.Close()
}

// converse has a device serve one end of a pipe, and gives the other.
func converse(t *testing.T, d *Device) net.Conn {
	near, far := net.Pipe()
	d.done.Go(func() {
		defer far.Close()
		d.converse(far, true)
	})
	t.Cleanup(func() { near.Close() })
	return near
}

// A change of many peers takes longer than a client may take for its part.
func TestUAPIAnswersAlsoWhenTheDeviceTakesLong(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
		a.apply(t, a.config())
		c := converse(t, a.Device)
		if err := a.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*uapiTimeout, a.release)
		if _, err := io.WriteString(c, "set=1\nfwmark=7\n\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 9)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "errno=0\n\n" {
			t.Errorf("answer %q, %v", answer, err)
		}
	})
}

func TestUAPIRequestHasAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
		c := converse(t, a.Device)
		wrote := make(chan int)
		go func() {
			lines, sent := bytes.Repeat([]byte("fwmark=7\n"), 10_000), 0
			io.WriteString(c, "set=1\n")
			for {
				n, err := c.Write(lines)
				if sent += n; err != nil {
					wrote <- sent
					return
				}
			}
		}()
		answer, err := io.ReadAll(c)
		if want := fmt.Sprintf("errno=%d\n\n", -int(syscall.EMSGSIZE)); string(answer) != want || err != nil {
			t.Errorf("answer %q, %v; want %q", answer, err, want)
		}
		if n := <-wrote; n > uapiBodyLimit {
			t.Errorf("%d bytes were read", n)
		}
	})
}

// Who sends a line now and then does not hold a place for ever.
func TestUAPIRequestThatTricklesIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1)
		c := converse(t, a.Device)
		start := time.Now()
		for _, err := io.WriteString(c, "set=1\n"); err == nil; _, err = io.WriteString(c, "fwmark=7\n") {
			pass(time.Second)
		}
		if d := time.Since(start); d > uapiTimeout+time.Second {
			t.Errorf("cut off after %v", d)
		}
	})
}

// As with the kernel, a port of zero is one that the system chooses. A whole configuration, as
// wg setconf sends it, only does not say which.
func TestUAPIListenPortOfZeroIsANewPort(t *testing.T) {
	a, b, path := socketNodes(t, "wg0")
	before := a.told()
	private := a.key.secret.value()
	whole := fmt.Sprintf("private_key=%x\nlisten_port=0\nfwmark=0\n", private)
	if got := ask(t, path, "set=1\n"+whole+"\n"); got != "errno=0\n\n" || len(a.told()) != len(before) {
		t.Errorf("a whole configuration: answer %q, changes %v", got, a.told())
	}
	if got := ask(t, path, "set=1\nlisten_port=0\n\n"); got != "errno=0\n\n" {
		t.Fatalf("answer %q", got)
	}
	s, err := a.State()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("listen_port: 51820 -> %d [UAPI socket]", s.ListenPort)}
	if diff := cmp.Diff(want, a.told()); diff != "" || s.ListenPort == 0 || s.ListenPort == 51820 {
		t.Errorf("port %d, changes told (-want +got):\n%s", s.ListenPort, diff)
	}
	until(t, func() bool { return b.peerState(t, a).Endpoint.Port() == s.ListenPort })
}

// The real wg(8), as a user runs it.
func TestWgToolWorksOnTheSocket(t *testing.T) {
	name := fmt.Sprintf("sw%d", os.Getpid()%100000)
	a, b, _ := socketNodes(t, name)
	wg := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command("wg", args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("wg %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	show := wg("", "show", name)
	for _, want := range []string{
		"interface: " + name, "public key: " + a.key.Public().String(), "private key: (hidden)", "listening port: 51820",
		"peer: " + b.key.Public().String(), "endpoint: 192.0.2.2:51820", "allowed ips: 10.9.0.2/32", "latest handshake:", "persistent keepalive: every 25 seconds",
	} {
		if !strings.Contains(show, want) {
			t.Errorf("wg show lacks %q:\n%s", want, show)
		}
	}
	if dump := strings.Fields(wg("", "show", name, "dump")); len(dump) != 12 || dump[4] != b.key.Public().String() {
		t.Errorf("wg show dump: %q", dump)
	}
	conf := wg("", "showconf", name)
	file := filepath.Join(t.TempDir(), "same.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	before := a.operations()
	wg("", "syncconf", name, file)
	wg("", "setconf", name, file)
	if after := a.operations(); after != before {
		t.Errorf("wg syncconf and setconf of the same made %d operations", after-before)
	}
	wg("", "set", name, "peer", b.key.Public().String(), "allowed-ips", "10.9.0.2/32,10.8.0.0/16", "persistent-keepalive", "off")
	want := []string{"keepalive: 25s -> off [UAPI socket]", "allowed_ips: (none) -> 10.8.0.0/16 [UAPI socket]"}
	if diff := cmp.Diff(want, a.told()); diff != "" {
		t.Errorf("changes told (-want +got):\n%s", diff)
	}
	if got := strings.TrimSpace(wg("", "show", name, "allowed-ips")); got != b.key.Public().String()+"\t10.8.0.0/16 10.9.0.2/32" {
		t.Errorf("wg show allowed-ips: %q", got)
	}
}

func FuzzUAPIGet(f *testing.F) {
	f.Add("private_key=00\nlisten_port=1\npublic_key=" + testPeer(8).Hex() + "\nallowed_ip=10.0.0.0/8\nlast_handshake_time_sec=1\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseUAPIGet(text)
		if err != nil {
			return
		}
		var out []byte
		for _, p := range s.Peers {
			out = p.appendUAPI(out, true)
		}
		again, err := parseUAPIGet(string(out))
		if err != nil {
			t.Fatalf("%q is not read back: %v", out, err)
		}
		s.PublicKey, s.ListenPort, s.FwMark = PublicKey{}, 0, 0
		if diff := cmp.Diff(s, again, sameState()); diff != "" {
			t.Fatalf("round trip:\n%s", diff)
		}
	})
}

func FuzzUAPISet(f *testing.F) {
	f.Add("listen_port=1\nreplace_peers=true\npublic_key=" + testPeer(8).Hex() + "\nallowed_ip=10.0.0.0/8\nallowed_ip=-10.0.0.0/8\nremove=true")
	f.Fuzz(func(t *testing.T, text string) {
		c := Config{PrivateKey: testKey(16), Peers: []PeerConfig{{PublicKey: testPeer(8), AllowedIPs: prefixes("10.0.0.0/8")}}}
		c, err := editConfig(c, strings.Split(text, "\n"))
		if err != nil {
			return
		}
		c, err = c.Normalized()
		if err != nil {
			return
		}
		m := modelOf(c)
		if ops := Diff(m.state(), c); len(ops) > 0 {
			t.Fatalf("an edited config differs from itself: %v", Changes(ops))
		}
	})
}
