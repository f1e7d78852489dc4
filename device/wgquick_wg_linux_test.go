package device

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// wgVerdict is what wg-quick and wg make of a file.
type wgVerdict struct {
	config   Config // as wireguard-go has it afterwards, without names and sources
	refusal  string // what wg says when it does not take the file
	stripped string // the output of wg-quick strip
}

// wgScript runs each file of $1 through "wg-quick strip" and "wg setconf", in a mount
// namespace where the sockets of $1 are those of /var/run/wireguard.
const wgScript = `
set -e
mount -t tmpfs none /run
mkdir -p /var/run && ln -s "$1" /var/run/wireguard
for conf in "$1"/*.conf; do
	name=$(basename "$conf" .conf)
	wg-quick strip "$conf" >"$1/$name.stripped" 2>"$1/$name.error" || continue
	wg setconf "$name" "$1/$name.stripped" 2>"$1/$name.error" && : >"$1/$name.ok"
done
exit 0
`

// askWg shows texts to the real wg-quick and wg, which write to one wireguard-go device each.
func askWg(t *testing.T, texts []string) []wgVerdict {
	t.Helper()
	for _, tool := range []string{"wg", "wg-quick"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s must be installed (package wireguard-tools): %v", tool, err)
		}
	}
	dir, err := os.MkdirTemp("", "wg") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	devices := make([]*wg.Device, len(texts))
	for i, text := range texts {
		if err := os.WriteFile(quickPath(dir, i, "conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		devices[i] = serveUAPI(t, quickPath(dir, i, "sock"))
	}
	runInNamespace(t, wgScript, dir)
	out := make([]wgVerdict, len(texts))
	for i := range texts {
		out[i] = verdict(t, dir, i, devices[i])
	}
	return out
}

func quickPath(dir string, i int, ending string) string {
	return filepath.Join(dir, fmt.Sprintf("q%d.%s", i, ending))
}

func verdict(t *testing.T, dir string, i int, d *wg.Device) wgVerdict {
	t.Helper()
	read := func(ending string) string {
		b, err := os.ReadFile(quickPath(dir, i, ending))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	v := wgVerdict{stripped: read("stripped")}
	if _, err := os.Stat(quickPath(dir, i, "ok")); err != nil {
		v.refusal = read("error") + "."
		return v
	}
	v.config = configOf(t, d)
	return v
}

// serveUAPI opens a wireguard-go device that listens on a socket like a userspace WireGuard.
func serveUAPI(t *testing.T, path string) *wg.Device {
	t.Helper()
	d := wg.NewDevice(idleTUN{events: make(chan tun.Event)}, conn.NewDefaultBind(), wg.NewLogger(wg.LogLevelSilent, ""))
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			d.IpcHandle(c)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		d.Close()
	})
	return d
}

func runInNamespace(t *testing.T, script, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", dir)
	cmd.Env = append(os.Environ(), "WG_ENDPOINT_RESOLUTION_RETRIES=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run wg in a mount namespace of its own (root or user namespaces are needed): %v\n%s", err, out)
	}
}

// configOf reads wireguard-go's state as a Config.
func configOf(t *testing.T, d *wg.Device) Config {
	t.Helper()
	text, err := d.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	var p *PeerConfig
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "private_key":
			c.PrivateKey = newPrivateKey(hexKey(t, value))
		case "listen_port":
			fmt.Sscan(value, &c.ListenPort)
		case "fwmark":
			fmt.Sscan(value, &c.FwMark)
		case "public_key":
			c.Peers = append(c.Peers, PeerConfig{PublicKey: hexKey(t, value)})
			p = &c.Peers[len(c.Peers)-1]
		case "preshared_key":
			p.PresharedKey = PresharedKey{newSecret(hexKey(t, value))}
		case "endpoint":
			p.Endpoint = EndpointFrom(netip.MustParseAddrPort(value))
		case "persistent_keepalive_interval":
			fmt.Sscan(value, &p.PersistentKeepalive)
			p.PersistentKeepalive *= time.Second
		case "allowed_ip":
			p.AllowedIPs = append(p.AllowedIPs, netip.MustParsePrefix(value))
		}
	}
	return normalized(t, c)
}

func hexKey(t *testing.T, s string) [KeyLen]byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return [KeyLen]byte(b)
}

func normalized(t *testing.T, c Config) Config {
	t.Helper()
	c, err := c.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// idleTUN is an interface that never comes up, so that no port is opened.
type idleTUN struct {
	tun.Device
	events chan tun.Event
}

func (i idleTUN) MTU() (int, error)        { return 1420, nil }
func (i idleTUN) BatchSize() int           { return 1 }
func (i idleTUN) Events() <-chan tun.Event { return i.events }
func (i idleTUN) Close() error             { close(i.events); return nil }
func (i idleTUN) Read([][]byte, []int, int) (int, error) {
	<-i.events
	return 0, os.ErrClosed
}

// sameConfig compares what a device would do, without what people call its peers.
func sameConfig() cmp.Option {
	return cmp.Options{compareSecrets(), cmpopts.IgnoreFields(PeerConfig{}, "Name", "Source"), cmpopts.EquateEmpty()}
}

// withoutNames gives every named endpoint of a text one address, since wg asks DNS at once.
func withoutNames(text string) string {
	return regexp.MustCompile(`(?i)(endpoint\s*=\s*)[a-z0-9.-]*[a-z][a-z0-9.-]*:`).ReplaceAllString(text, "${1}192.0.2.200:")
}

func TestFilesAreReadAsWgReadsThem(t *testing.T) {
	// What we read and wg does not, with wg's words.
	beyond := map[string]string{
		"android-app.conf":     "Line unrecognized: `ExcludedApplications=com.example.bank,org.example.tv'",
		"bom-crlf-no-end.conf": "Line unrecognized: `\ufeff[Interface]'",
		"hand-written.conf":    "Line unrecognized: `;mytunnel,donottouch'",
		"odd-values.conf":      "Key is not the correct length or format: `\"",
		"old-mac.conf":         "Line unrecognized: `[Interface]PrivateKey=",
		"proxy-over-file.conf": "Line unrecognized: `WGConfig=../include/wg.conf'",
		"proxy-two-peers.conf": "Line unrecognized: `AllowedIPs='",
		"proxy.conf":           "Key is not the correct length or format: `$WG_PRIVATE_KEY'",
	}
	files := corpusFiles(t, "testdata/wgquick/read/*.conf")
	var texts []string
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, withoutNames(string(b)))
	}
	for i, v := range askWg(t, texts) {
		name := filepath.Base(files[i])
		t.Run(name, func(t *testing.T) {
			want, isBeyond := beyond[name]
			if isBeyond != (v.refusal != "") || !strings.Contains(v.refusal, want) {
				t.Fatalf("wg says %q, want %q", v.refusal, want)
			}
			if isBeyond {
				return
			}
			checkSame(t, v, texts[i])
		})
	}
}

// checkSame compares our reading of a text with wg's, and our reading of what wg-quick
// leaves of it.
func checkSame(t *testing.T, v wgVerdict, text string) {
	t.Helper()
	for what, text := range map[string]string{"file": text, "output of wg-quick strip": v.stripped} {
		f, err := Parse("wg0.conf", strings.NewReader(text), ParseOptions{})
		if err != nil {
			t.Fatalf("wg reads the %s, we do not: %v\n%s", what, err, text)
		}
		if diff := cmp.Diff(v.config, normalized(t, f.Config), sameConfig()); diff != "" {
			t.Fatalf("the %s is read differently (-wg +ours):\n%s\n%s", what, diff, text)
		}
	}
}

func TestMessyFilesAreReadAsWgReadsThem(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := make([]string, 30)
	for i := range texts {
		texts[i] = mess{random}.file()
	}
	refused := 0
	for i, v := range askWg(t, texts) {
		if v.refusal != "" {
			refused++
			continue
		}
		checkSame(t, v, texts[i])
	}
	if refused > len(texts)/2 {
		t.Errorf("wg refused %d of %d texts: too few are left to compare", refused, len(texts))
	}
}

func TestWhereWeDifferFromWgIsKnown(t *testing.T) {
	const peer = "[Peer]\nPublicKey = yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM=\n"
	tests := []struct {
		text     string
		wg, ours bool // whether it is read
	}{
		{"[Interface]\nListenPort = 65535\n", true, true},
		{"[Interface]\nListenPort = 65536\n", true, false}, // port 0 to wg
		{"[Interface]\nListenPort = domain\n", true, false},
		{"[Interface]\nFwMark = 0x100000000\n", false, false},
		{"[Interface]\nFwMark = -1\n", false, false},
		{"[Interface]\nPrivateKey = short\n", false, false},
		{"[Interface]\nColour = blue\n", false, false},
		{"[Interface]\nPublicKey = yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM=\n", false, false},
		{"[Wallpaper]\n", false, false},
		{"PrivateKey = KP1LAxOw9JzzIOCv6DVMjs+80oagdxEzpvzi37gmLG8=\n", false, false},
		{"[Peer]\nAllowedIPs = 10.0.0.0/8\n", false, false},
		{peer + "AllowedIPs = 10.0.0.0/33\n", false, false},
		{peer + "AllowedIPs = ::/129\n", false, false},
		{peer + "AllowedIPs = 10.0.0\n", false, false},
		{peer + "AllowedIPs = 010.0.0.1\n", false, false},
		{peer + "AllowedIPs = fe80::1%eth0\n", false, false},
		{peer + "AllowedIPs = 10.0.0.0/x\n", false, false},
		{peer + "AllowedIPs = 10.0.0.0/-1\n", false, false},
		{peer + "Endpoint = 192.0.2.1\n", false, false},
		{peer + "Endpoint = [2001:db8::1]\n", false, false},
		{peer + "Endpoint = 2001:db8::1\n", false, false},
		{peer + "Endpoint = 192.0.2.1:nonsense\n", false, false},
		{peer + "PersistentKeepalive = 65536\n", false, false},
		{peer + "PersistentKeepalive = on\n", false, false},
		{peer + "Address = 10.0.0.1/24\n", false, false},
		{peer + "AllowedIPs =\n", false, true},
		{peer + "PresharedKey =\n", false, true},
		{peer + "Endpoint =\n", false, true},
		{peer + "AllowedIPs = 10.0.0.0/8,\n", false, true},
		{peer + "AllowedIPs = 10.0.0.0/8 10.0.0.1\n", false, true},
		{peer + "AllowedIPs = 10.0.0.0/255.0.0.0\n", false, true},
		{"; comment\n" + peer, false, true},
	}
	var texts []string
	for _, tt := range tests {
		texts = append(texts, tt.text)
	}
	for i, v := range askWg(t, texts) {
		_, err := Parse("wg0.conf", strings.NewReader(tests[i].text), ParseOptions{})
		if (v.refusal == "") != tests[i].wg || (err == nil) != tests[i].ours {
			t.Errorf("%q: wg says %q, we say %v", tests[i].text, v.refusal, err)
		}
	}
}

// mess writes files as people and programs write them, most of which wg takes.
type mess struct{ *rand.Rand }

func (m mess) file() string {
	var b strings.Builder
	b.WriteString(m.section("[Interface]"))
	b.WriteString(m.line("PrivateKey", m.key(m.IntN(3))))
	for range m.IntN(4) {
		b.WriteString(m.pick(
			m.line("ListenPort", m.pick("0", "51820", "00123")),
			m.line("FwMark", m.pick("off", "0", "0xCa6c", "51820", "OFF")),
			m.line("Address", m.prefix()),
			m.line("DNS", "1.1.1.1, lan"),
			m.line("PostUp", "echo [Peer] = x"),
			m.line("MTU", "1280"),
			m.section("[Interface]"),
		))
	}
	for range m.IntN(6) {
		b.WriteString(m.peer())
	}
	return b.String()
}

func (m mess) peer() string {
	text := m.section("[Peer]") + m.line("PublicKey", testPrivateKey(m.IntN(4)).Public().String())
	for range m.IntN(6) {
		text += m.pick(
			m.line("AllowedIPs", m.prefix()),
			m.line("AllowedIPs", m.prefix()+m.pick(",", " , ")+m.prefix()),
			m.line("Endpoint", m.pick("192.0.2.1:51820", "[2001:db8::1]:1", "2001:db8::1:2")),
			m.line("PersistentKeepalive", m.pick("off", "0", "25", "Off", "65535")),
			m.line("PresharedKey", m.key(m.IntN(4))),
		)
	}
	return text
}

func (m mess) prefix() string {
	return m.pick("10.0.0.", "10.0.1.", "fd00::") + strconv.Itoa(m.IntN(4)) + m.pick("", "/32", "/24", "/8", "/0", " / 30")
}

func (m mess) key(i int) string { return testPrivateKey(i).Reveal() }

func testPrivateKey(i int) PrivateKey { return newPrivateKey([KeyLen]byte{8, byte(i), 31: 64}) }

func (m mess) section(name string) string {
	return m.pick("", "\n", "# comment\n") + m.pick("", " ", "\t") + m.letters(name) + m.pick("", " ", " # x", "#y=z") + m.end()
}

func (m mess) line(key, value string) string {
	return m.pick("", " ", "\t\t") + m.letters(key) + m.pick("=", " = ", "\t=") + value + m.pick("", " ", "# x", " # [Peer]") + m.end()
}

func (m mess) letters(s string) string { return m.pick(s, s, strings.ToLower(s), strings.ToUpper(s)) }

func (m mess) end() string { return m.pick("\n", "\n", "\r\n", "\n\n", "\n#\n") }

func (m mess) pick(texts ...string) string { return texts[m.IntN(len(texts))] }
