package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stillwire/stillwire/device"
)

// Fixed keys, so that goldens stay: made for these tests, used nowhere else.
const (
	keyA = "YAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
	keyB = "uO4ZjEkP5c3l9b0AWwJn1v5ZJ9Qv1Q7P4ZkYxkq4G3Y="
	pubC = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
	pubD = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0="
)

// plainConf is a file with which nothing is wrong.
const plainConf = "[Interface]\nPrivateKey = " + keyA + "\nAddress = 10.0.0.2/24\nDNS = 10.0.0.1\n\n" +
	"[Peer]\nPublicKey = " + pubC + "\nAllowedIPs = 10.0.0.0/24\nEndpoint = 192.0.2.1:51820\n"

// golden is a folder of files with what is asked of them and what comes out:
//
//	flags: --socks5 0.0.0.0:1080 wg0.conf
//	-- gateway.yaml --
//	…
//	-- want --
//	…
type golden struct {
	path  string
	flags string
	files map[string]string // without want
	want  string
}

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := golden{path: path, files: map[string]string{}}
	head, rest, _ := strings.Cut(string(b), "\n")
	g.flags = strings.TrimPrefix(head, "flags:")
	name := ""
	for line := range strings.Lines(rest) {
		if n, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(strings.TrimSpace(n), " --")
			continue
		}
		g.files[name] += line
	}
	g.want = g.files["want"]
	delete(g.files, "want")
	delete(g.files, "")
	return g
}

// compare checks what came out, or with UPDATE_GOLDEN=1 writes it down.
func (g golden) compare(t *testing.T, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" && got != g.want {
		b, _ := os.ReadFile(g.path)
		head, _, _ := strings.Cut(string(b), "-- want --\n")
		if err := os.WriteFile(g.path, []byte(head+"-- want --\n"+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(g.want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", g.path, diff)
	}
}

// enter puts the files into a fresh working folder, with wg0.conf if they have none.
func (g golden) enter(t *testing.T) Sources {
	t.Helper()
	t.Chdir(t.TempDir())
	if _, ok := g.files["wg0.conf"]; !ok {
		g.files["wg0.conf"] = plainConf
	}
	for name, text := range g.files {
		writeFile(t, name, strings.NewReplacer("$KEY_A", keyA, "$KEY_B", keyB, "$PUB_C", pubC, "$PUB_D", pubD).Replace(text))
	}
	return parseFlags(t, g.flags)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// parseFlags stands for the command line.
func parseFlags(t *testing.T, line string) (s Sources) {
	t.Helper()
	s.LookupEnv = func(name string) (string, bool) { return "env-of-" + name, name == "SET" }
	words := strings.Fields(line)
	for i := 0; i < len(words); i++ {
		if words[i] == "--open" {
			s.Open = true
			continue
		}
		if !strings.HasPrefix(words[i], "--") {
			s.Files = append(s.Files, words[i])
			continue
		}
		flag, value := words[i], words[i+1]
		i++
		switch flag {
		case "--socks5":
			s.SOCKS5 = append(s.SOCKS5, value)
		case "--http":
			s.HTTP = append(s.HTTP, value)
		case "--forward":
			s.Forward = append(s.Forward, value)
		case "--publish":
			s.Publish = append(s.Publish, value)
		case "--config":
			s.Config = value
		case "--admin":
			s.Admin = value
		case "--drain":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			s.Drain = &d
		default:
			t.Fatalf("flag %s", flag)
		}
	}
	return s
}

func goldens(t *testing.T, pattern string, least int) []golden {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) < least {
		t.Fatalf("%d files match %s, want at least %d: %v", len(paths), pattern, least, err)
	}
	var all []golden
	for _, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, readGolden(t, abs))
	}
	return all
}

func TestWrongSpecsAreRefusedWithTheirLineAndARemedy(t *testing.T) {
	for _, g := range goldens(t, "testdata/wrong/*.txt", 20) {
		t.Run(strings.TrimSuffix(filepath.Base(g.path), ".txt"), func(t *testing.T) {
			spec, err := Load(g.enter(t))
			if err == nil {
				t.Fatalf("accepted: %+v", spec)
			}
			g.compare(t, err.Error()+"\n")
		})
	}
}

func TestCheckSaysWhatIsReadIgnoredAndRefused(t *testing.T) {
	for _, g := range goldens(t, "testdata/check/*.txt", 3) {
		t.Run(strings.TrimSuffix(filepath.Base(g.path), ".txt"), func(t *testing.T) {
			report, err := Check(g.enter(t))
			text := report.String()
			if err != nil {
				text += "refused\n  " + strings.ReplaceAll(err.Error(), "\n", "\n  ") + "\n"
			}
			g.compare(t, text)
		})
	}
}

// loadText loads files given as in a golden.
func loadText(t *testing.T, flags string, files map[string]string) Spec {
	t.Helper()
	spec, err := Load(golden{flags: flags, files: files}.enter(t))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestOneServiceReadsTheSameFromEverySource(t *testing.T) {
	const userLine = "me:word\n"
	for _, tc := range []struct {
		name      string
		flags     string
		yaml      string
		wireproxy string
		want      string
	}{
		{
			name:      "socks5",
			flags:     "--socks5 127.0.0.1:1080",
			yaml:      "socks5:\n- 127.0.0.1:1080\n",
			wireproxy: "[Socks5]\nBindAddress = 127.0.0.1:1080\n",
			want:      "socks5 127.0.0.1:1080 into tunnel wg0 for everyone",
		},
		{
			name:      "http with a user beyond loopback",
			flags:     "--http me:pass@0.0.0.0:8080",
			yaml:      "http:\n- listen: 0.0.0.0:8080\n  users: users\n",
			wireproxy: "[http]\nBindAddress = 0.0.0.0:8080\nUsername = me\nPassword = word\n",
			want:      "http 0.0.0.0:8080 into tunnel wg0 for 1 user",
		},
		{
			name:      "tcp forward",
			flags:     "--forward tcp/127.0.0.1:5432=db.internal:5432",
			yaml:      "forward:\n- listen: tcp/5432\n  target: db.internal:5432\n",
			wireproxy: "[TCPClientTunnel]\nBindAddress = localhost:5432\nTarget = db.internal:5432\n",
			want:      "forward tcp/127.0.0.1:5432 to db.internal:5432",
		},
		{
			name:      "tcp publish",
			flags:     "--publish tcp/8080=127.0.0.1:80",
			yaml:      "publish:\n- listen: tcp/8080\n  target: 127.0.0.1:80\n  tunnel: wg0\n",
			wireproxy: "[TCPServerTunnel]\nListenPort = 8080\nTarget = 127.0.0.1:80\n",
			want:      "publish wg0/tcp/8080 to 127.0.0.1:80",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			specs := map[string]Spec{
				"flags":        loadText(t, tc.flags+" wg0.conf", map[string]string{"pass": "word\n"}),
				"tunnel named": loadText(t, strings.Replace(tc.flags, " ", " wg0/", 1)+" wg0.conf", map[string]string{"pass": "word\n"}),
				"yaml": loadText(t, "--config gateway.yaml", map[string]string{
					"gateway.yaml": "tunnels:\n- wg0.conf\n" + tc.yaml, "users": userLine}),
				"wireproxy": loadText(t, "wg0.conf", map[string]string{"wg0.conf": plainConf + tc.wireproxy}),
			}
			for source, spec := range specs {
				if len(spec.Services) != 1 {
					t.Fatalf("%s: %d services", source, len(spec.Services))
				}
				s := spec.Services[0]
				if got := fmt.Sprint(s, " ", s.summary()); got != tc.want {
					t.Errorf("%s: %q, want %q", source, got, tc.want)
				}
				if s.guarded() != specs["flags"].Services[0].guarded() {
					t.Errorf("%s: users differ from those of the flags", source)
				}
			}
		})
	}
}

func TestUDPForwardOfWireproxyKeepsItsTimeout(t *testing.T) {
	const section = "[UDPProxyTunnel]\nBindAddress = 127.0.0.1:53\nTarget = 10.0.0.1:53\n"
	for text, want := range map[string]time.Duration{
		"":                         -1,
		"InactivityTimeout = 0\n":  -1,
		"InactivityTimeout = 30\n": 30 * time.Second,
	} {
		spec := loadText(t, "wg0.conf", map[string]string{"wg0.conf": plainConf + section + text})
		got := spec.Services
		want := []Service{{Kind: Forward, Tunnel: "wg0", Target: "10.0.0.1:53", Idle: want, Source: "wg0.conf:10"}}
		want[0].Listen, _ = parseListen("udp", "", "127.0.0.1:53")
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Service{}, "Users", "login", "strangers"), cmp.Comparer(func(a, b Listen) bool { return a == b })); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestFlagsWinOverTheYAMLFilesSettings(t *testing.T) {
	spec := loadText(t, "--config g.yaml --admin 9090 --drain 3s", map[string]string{
		"g.yaml": "tunnels: [wg0.conf]\nadmin: 9091\ndrain: 1m\nstateDir: state\n"})
	if got := spec.Admin.Listen.String(); got != "127.0.0.1:9090" {
		t.Errorf("admin %s", got)
	}
	if spec.Drain != 3*time.Second || spec.StateDir != "state" {
		t.Errorf("drain %s, stateDir %s", spec.Drain, spec.StateDir)
	}
}

func TestTunnelNameComesFromTheFile(t *testing.T) {
	for path, want := range map[string]string{
		"/etc/wireguard/wg0.conf":  "wg0",
		"Mullvad SE (1).conf":      "Mullvad-SE--1",
		"office":                   "office",
		"a/b.c/x.y.conf":           "x.y",
		"/run/secrets/..data/k.wg": "k",
		"€.conf":                   "",
	} {
		if got := tunnelName(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestEveryFileThatALoadReadsIsRemembered(t *testing.T) {
	g := golden{flags: "--config g.yaml --socks5 me:pass@1080 --http 8080", files: map[string]string{
		"g.yaml": "tunnels: [wg0.conf]\nforward:\n- listen: tcp/2\n  target: a:1\nsocks5:\n- listen: 0.0.0.0:1\n  users: users\n",
		"users":  "a:b\n", "pass": "x",
	}}
	r := newReads()
	l := load(g.enter(t), r)
	if len(l.errs) > 0 {
		t.Fatal(l.errs)
	}
	if diff := cmp.Diff([]string{"g.yaml", "pass", "users", "wg0.conf"}, r.paths()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if !r.equal(r.again()) {
		t.Error("files that did not change differ")
	}
	writeFile(t, "users", "a:c\n")
	if r.equal(r.again()) {
		t.Error("a changed file does not differ")
	}
}

func TestTheExampleReadsWithoutAFault(t *testing.T) {
	spec, err := Load(Sources{Config: "../../examples/gateway/gateway.yaml"})
	mustDo(t, err)
	if len(spec.Tunnels) != 2 || len(spec.Services) != 7 {
		t.Errorf("%d tunnels, %d services", len(spec.Tunnels), len(spec.Services))
	}
}

func TestFilesThatATunnelsFileNamesAreWatchedToo(t *testing.T) {
	g := golden{flags: "wp.conf", files: map[string]string{
		"wp.conf":     "WGConfig = sub/wg.conf\n[Socks5]\nBindAddress = 127.0.0.1:1080\n",
		"sub/wg.conf": "[Interface]\nPrivateKeyFile = key\nAddress = 10.0.0.2/24\n[Peer]\nPublicKey = $PUB_C\nPresharedKeyFile = /nosuch\n",
		"sub/key":     "$KEY_A\n",
	}}
	r := newReads()
	l := load(g.enter(t), r)
	if len(l.errs) != 1 || !strings.Contains(l.errs[0].Error(), "sub/wg.conf:6: PresharedKeyFile") {
		t.Errorf("errors %v", l.errs)
	}
	if diff := cmp.Diff([]string{"/nosuch", "sub/key", "sub/wg.conf", "wp.conf"}, r.paths()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func FuzzYAML(f *testing.F) {
	f.Add("tunnels: [wg0.conf]\nsocks5:\n- {listen: 1080, users: u}\n")
	f.Add("a: &a [*a]\ntunnels: *a\n<<: {}\n")
	f.Add("admin: {listen: x}\ndrain: 1s\n? [a]\n: b\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "g.yaml")
		writeFile(t, path, text)
		l := &loader{reads: newReads()}
		l.yaml(path)
		for _, err := range l.errs {
			if strings.ContainsRune(err.Error(), '\n') && !strings.Contains(err.Error(), "tunnels") {
				t.Errorf("an error of several lines: %q", err)
			}
		}
	})
}

func TestNoticesOfAForwardThatNoPeerCarries(t *testing.T) {
	spec := loadText(t, "--forward tcp/5432=10.9.0.5:5432 wg0.conf", map[string]string{})
	want := []device.Notice{{File: "--forward tcp/127.0.0.1:5432", Value: "10.9.0.5:5432",
		Reason: "is covered by no AllowedIPs of tunnel wg0: flows will be refused until a peer has it"}}
	if diff := cmp.Diff(want, spec.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestSecretsThatEverybodyMayReadAreWarnedOf(t *testing.T) {
	g := golden{flags: "wg0.conf", files: map[string]string{}}
	s := g.enter(t)
	mustDo(t, os.Chmod("wg0.conf", 0o644))
	spec, err := Load(s)
	mustDo(t, err)
	if len(spec.Warnings) != 1 || !strings.Contains(spec.Warnings[0].Reason, "chmod 600") {
		t.Errorf("warnings %v", spec.Warnings)
	}
}

func FuzzTunnelFile(f *testing.F) {
	f.Add("[Socks5]\nBindAddress = :1080\nUsername = a\nPassword = b\n")
	f.Add("[TCPServerTunnel]\nListenPort = 80\nTarget = a:1\n[UDPProxyTunnel]\nBindAddress = 1\nTarget = b:2\nInactivityTimeout = 3\n")
	f.Add("[http]\nCertFile = x\nbindaddress = unix:/x\n[STDIOTunnel]\n[Resolve]\n")
	f.Fuzz(func(t *testing.T, sections string) {
		path := filepath.Join(t.TempDir(), "wg0.conf")
		writeFile(t, path, plainConf+sections)
		spec, err := Load(Sources{Files: []string{path}, LookupEnv: func(string) (string, bool) { return "", false }})
		if err == nil && len(Diff(spec, spec)) > 0 {
			t.Errorf("a spec differs from itself: %v", Diff(spec, spec))
		}
		if report, again := Check(Sources{Files: []string{path}, LookupEnv: func(string) (string, bool) { return "", false }}); again == nil && err != nil || strings.Contains(asJSON(t, report)+report.String(), keyA) {
			t.Errorf("check says %v and load %v; report %q", again, err, report)
		}
	})
}
