package gateway

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenSaysWhyAndWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	defer taken.Close()
	dir := t.TempDir()
	writeFile(t, dir+"/file", "x")
	used, err := net.Listen("unix", dir+"/used")
	mustDo(t, err)
	defer used.Close()
	for text, want := range map[string]string{
		taken.Addr().String():   "is taken by another program: stop it or choose another port",
		"192.0.2.77:1080":       "is no address of this machine: choose one of its own",
		"unix:" + dir + "/no/x": "is in a folder that does not exist: make the folder or choose another path",
		"unix:" + dir + "/file": "is a file that is no socket: remove it or choose another path",
		"unix:" + dir + "/used": "is the socket of a program that runs: stop it or choose another path",
	} {
		l, err := parseListen("tcp", "", text)
		mustDo(t, err)
		ln, err := openStream(t.Context(), l, false)
		if err == nil {
			ln.Close()
			t.Errorf("%s: opened", text)
		} else if err.Error() != want {
			t.Errorf("%s: %q, want %q", text, err, want)
		}
	}
}

func TestListenerIsOpenInTheFamiliesThatItNames(t *testing.T) {
	for text, want := range map[string]string{ // the families in which a client gets in
		"0.0.0.0:0": "4", "*:0": "46", "[::]:0": "46", "127.0.0.1:0": "4", "[::1]:0": "6",
	} {
		l, err := parseListen("tcp", "", text)
		mustDo(t, err)
		ln, err := openStream(t.Context(), l, false)
		mustDo(t, err)
		udp, err := openPacket(t.Context(), Listen{Network: "udp", Addr: l.Addr})
		mustDo(t, err)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		mustDo(t, err)
		got := ""
		for family, host := range map[string]string{"4": "127.0.0.1", "6": "::1"} {
			if conn, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
				conn.Close()
				got += family
			}
		}
		if strings.Contains(got, "4") != strings.Contains(want, "4") || strings.Contains(got, "6") != strings.Contains(want, "6") {
			t.Errorf("%s: reached by IPv%s, want IPv%s", text, got, want)
		}
		if tcp, udp := family(ln.Addr()), family(udp.LocalAddr()); tcp != udp {
			t.Errorf("%s: TCP %s, UDP %s", text, tcp, udp)
		}
		mustDo(t, ln.Close(), udp.Close())
	}
}

func family(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String())
	return host
}

func TestSocketIsForItsUserAloneUnlessShared(t *testing.T) {
	for shared, want := range map[bool]os.FileMode{false: 0o600, true: 0o666} {
		path := filepath.Join(t.TempDir(), "s")
		ln, err := openStream(t.Context(), Listen{Network: "unix", Path: path}, shared)
		mustDo(t, err)
		info, err := os.Stat(path)
		mustDo(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("shared %v: mode %o, want %o", shared, got, want)
		}
		ln.Close()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("shared %v: socket is left behind: %v", shared, err)
		}
	}
}

func TestSocketOfADeadProcessIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", path)
	mustDo(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	mustDo(t, dead.Close())
	ln, err := openStream(t.Context(), Listen{Network: "unix", Path: path}, false)
	mustDo(t, err)
	dial(t, ln.Addr())
	mustDo(t, ln.Close())
}

func TestListenersThatClash(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"1080", "127.0.0.1:1080", true},
		{"1080", "127.0.0.1:1081", false},
		{"1080", "0.0.0.0:1080", true},
		{"*:1080", "1080", true},
		{"[::1]:1080", "0.0.0.0:1080", false},
		{"[::1]:1080", "*:1080", true},
		{"127.0.0.2:1080", "1080", false},
		{"0", "0", false},
		{"unix:/a", "unix:/a", true},
		{"unix:/a", "unix:/b", false},
		{"unix:/a", "1080", false},
	} {
		a, errA := parseListen("tcp", "", tc.a)
		b, errB := parseListen("tcp", "", tc.b)
		mustDo(t, errA, errB)
		if a.clashes(b) != tc.want || b.clashes(a) != tc.want {
			t.Errorf("%s and %s clash: %v and %v, want %v", tc.a, tc.b, a.clashes(b), b.clashes(a), tc.want)
		}
	}
}

func TestListenerBeyondLoopback(t *testing.T) {
	for text, want := range map[string]bool{
		"1080": false, "localhost:1": false, "127.3.2.1:1": false, "[::1]:1": false, "unix:/a": false,
		"[::ffff:127.0.0.1]:1": false, "0.0.0.0:1": true, "*:1": true, "[::]:1": true, "10.0.0.1:1": true,
	} {
		l, err := parseListen("tcp", "", text)
		mustDo(t, err)
		if l.beyond() != want {
			t.Errorf("%s: %v, want %v", text, l.beyond(), want)
		}
		if again, err := parseListen("tcp", "", l.String()); err != nil || again != l {
			t.Errorf("%s reads back as %v, %v", l, again, err)
		}
	}
}

func FuzzServiceText(f *testing.F) {
	for _, seed := range []string{"tcp/1=a:1", "wg0/udp/[::1]:5=10.0.0.1:53", "me:f@[::1]:1", "unix:/a=b", "a/b/c=d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		for _, kind := range []Kind{SOCKS5, HTTP, Forward, Publish} {
			l := &loader{reads: newReads()}
			if strings.ContainsRune(arg, '@') {
				return // would read a file
			}
			l.short(origin{field: "--flag"}, "/dir", kind, arg)
			if len(l.errs)+len(l.spec.Services) != 1 {
				t.Errorf("%s %q: %d errors, %d services", kind, arg, len(l.errs), len(l.spec.Services))
			}
		}
	})
}
