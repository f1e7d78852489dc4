package device

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestFileOfAnotherKindIsRefusedInFewWords(t *testing.T) {
	for _, tt := range []struct {
		name string
		text io.Reader
		want []string
	}{
		{"ten megabytes", io.LimitReader(spaces{}, 10<<20),
			[]string{"wg0.conf: file has more than the 8388608 bytes that are read: this is no wg-quick file"}},
		{"a line of a megabyte", strings.NewReader("[Interface]\nAddress = " + strings.Repeat("10.0.0.1,", 1<<17)),
			[]string{"wg0.conf:2: line has 1179658 bytes, more than the 524288 that are read: spread the values over several lines"}},
		{"a disk that fails", iotest.ErrReader(&fs.PathError{Op: "read", Path: "wg0.conf", Err: errors.New("input/output error")}),
			[]string{"wg0.conf: file cannot be read: input/output error"}},
		{"UTF-16 the other way", strings.NewReader("\xfe\xff\x00["),
			[]string{"wg0.conf:1: file is UTF-16 text: save it as UTF-8"}},
		{"a peer too many", strings.NewReader(manyPeers(MaxPeers + 1)),
			[]string{"wg0.conf: file has 65537 peers, more than the 65536 a device can hold"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("wg0.conf", tt.text, ParseOptions{})
			if diff := cmp.Diff(tt.want, lines(err)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{' '}, len(b)))
	return len(b), nil
}

func manyPeers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[Peer]\nPublicKey = %v\nAllowedIPs = 10.%d.%d.%d\n", PublicKey{byte(i), byte(i >> 8), byte(i >> 16), 1}, byte(i>>16), byte(i>>8), byte(i))
	}
	return b.String()
}

func TestAsManyPeersAsADeviceHoldsAreRead(t *testing.T) {
	f, err := Parse("wg0.conf", strings.NewReader(manyPeers(MaxPeers)), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Config.Peers); n != MaxPeers || len(f.Warnings) != 0 {
		t.Errorf("read %d peers with %d warnings, want %d with none", n, len(f.Warnings), MaxPeers)
	}
}

func TestRemarksAreBounded(t *testing.T) {
	_, err := Parse("wg0.conf", strings.NewReader(strings.Repeat("x\n", 100_000)), ParseOptions{})
	got := lines(err)
	if len(got) != maxRemarks+1 || got[0] != "wg0.conf:1: line is neither a [Section], a comment nor Key = value" ||
		got[maxRemarks] != "wg0.conf: file has 99800 more errors: is it a wg-quick file?" {
		t.Errorf("%d errors, the first %q, the last %q", len(got), got[0], got[len(got)-1])
	}
	f, err := Parse("wg0.conf", strings.NewReader("[Interface]\n"+strings.Repeat("Table = off\nListenPort = 1\n", 1000)), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Ignored); n != maxRemarks+1 || f.Ignored[maxRemarks].String() != "wg0.conf: file has 800 more lines of the kind" {
		t.Errorf("%d lines are ignored, the last %v", n, f.Ignored[n-1])
	}
	if n := len(f.Warnings); n != maxRemarks+1 || f.Warnings[maxRemarks].String() != "wg0.conf: file has 799 more lines of the kind" {
		t.Errorf("%d warnings, the last %v", n, f.Warnings[n-1])
	}
}

func TestSecretsThatOthersCanReadAreWarnedOf(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("files have no modes here: there is nothing to warn of")
	}
	const key = "KP1LAxOw9JzzIOCv6DVMjs+80oagdxEzpvzi37gmLG8="
	const peer = "[Peer]\nPublicKey = IXEU5EO7zOgWLmjTJ5RWKnZHVnKomLTHm2XUkWC11GI=\n"
	for _, tt := range []struct {
		name          string
		conf          string
		mode, keyMode fs.FileMode
		want          []string
	}{
		{"owner only", "[Interface]\nPrivateKey = " + key, 0o600, 0o600, nil},
		{"a group may read, as with Secrets of Kubernetes", "[Interface]\nPrivateKeyFile = key", 0o440, 0o440, nil},
		{"no secret in it", peer, 0o644, 0o644, nil},
		{"a blank secret in it", peer + "PresharedKey =", 0o644, 0o644, nil},
		{"a secret of the environment", "[Interface]\nPrivateKey = $WG_KEY\n", 0o644, 0o644, nil},
		{"private key", "[Interface]\n\nPrivateKey = " + key, 0o644, 0o600,
			[]string{"wg0.conf:3: PrivateKey: can be read by others, as the file has mode 0644: run chmod 600 on it"}},
		{"preshared key", peer + "PresharedKey = " + key, 0o604, 0o600,
			[]string{"wg0.conf:3: PresharedKey: can be read by others, as the file has mode 0604: run chmod 600 on it"}},
		{"password of a proxy", "[Interface]\nPrivateKey = $WG_KEY\n[Socks5]\nUsername = me\nPassword = word", 0o644, 0o644,
			[]string{"wg0.conf:5: Password: can be read by others, as the file has mode 0644: run chmod 600 on it"}},
		{"a group may write", "[Interface]\nPrivateKeyFile = key", 0o644, 0o660,
			[]string{`wg0.conf:2: PrivateKeyFile: "key" can be changed or read by others, as it has mode 0660: run chmod 600 on it`}},
		{"key file", peer + "PresharedKeyFile = key", 0o644, 0o644,
			[]string{`wg0.conf:3: PresharedKeyFile: "key" can be changed or read by others, as it has mode 0644: run chmod 600 on it`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("WG_KEY", key)
			writeFile(t, "wg0.conf", tt.conf, tt.mode)
			writeFile(t, "key", key+"\n", tt.keyMode)
			f, err := ParseFile("wg0.conf")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range f.Warnings {
				got = append(got, n.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func writeFile(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestFileThatIsNotThereIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wg0.conf")
	_, err := ParseFile(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(fmt.Sprint(err), path) {
		t.Errorf("error is %v", err)
	}
}

func TestKeyFileIsBounded(t *testing.T) {
	o := ParseOptions{Open: func(string) (fs.File, error) { return endless{}, nil }}
	_, err := Parse("wg0.conf", strings.NewReader("[Interface]\nPrivateKeyFile = /dev/zero\n"), o)
	want := []string{`wg0.conf:2: PrivateKeyFile: "/dev/zero" is too large to be a file with one key`}
	if diff := cmp.Diff(want, lines(err)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

type endless struct{ spaces }

func (endless) Stat() (fs.FileInfo, error) { return nil, errors.New("unknown") }
func (endless) Close() error               { return nil }

func TestUntrustedTextOpensNothing(t *testing.T) {
	o := ParseOptions{Open: openNothing, LookupEnv: emptyEnv}
	_, err := Parse("wg0.conf", strings.NewReader("WGConfig = /etc/passwd\n[Interface]\nPrivateKeyFile = /etc/shadow\nAddress = $HOME\n"), o)
	want := []string{
		`wg0.conf:1: WGConfig: "/etc/passwd" cannot be read: must not be opened`,
		`wg0.conf:3: PrivateKeyFile: "/etc/shadow" cannot be read: must not be opened`,
		`wg0.conf:4: Address: "$HOME" is not set in the environment: set HOME, or write $$ for a plain $`,
	}
	if diff := cmp.Diff(want, lines(err)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}
