package device

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var updateQuick = flag.Bool("update-wgquick", false, "write the golden files of testdata/wgquick anew")

// quickCorpus copies testdata/wgquick to a folder of its own, since the modes of a checkout
// are anybody's guess, and makes it the working directory.
func quickCorpus(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/wgquick")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
}

// quickEnv is what the corpus finds in the environment.
func quickEnv(t *testing.T) {
	for name, value := range map[string]string{
		"WG_PRIVATE_KEY":     "QCcT4LE4CTnerjgpVNNW8HWchJoLalUnGrigJdqqL2w=\n",
		"WG_PRIVATE_KEY_BAD": "QCcT4LE4CTnerjgpVNNW8HWchJoLalUnGrigJdqqL2",
		"WG_DNS":             "10.200.200.1, tunnel.example",
		"WG_NOT_AN_ADDRESS":  "QCcT4LE4CTnerjgpVNNW8HWchJoLalUnGrigJdqqL2w=",
		"WG_LINES":           "51820\nPostUp = reboot",
		"SOCKS_PASSWORD":     " #; `'\"$x ",
	} {
		t.Setenv(name, value)
	}
}

func corpusFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	return files
}

// transcript is all that a file says, as an operator would read it.
func transcript(f *File) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", f.Format())
	for _, part := range []struct {
		title   string
		notices []Notice
	}{{"ignored", f.Ignored}, {"warnings", f.Warnings}} {
		if len(part.notices) > 0 {
			fmt.Fprintf(&b, "\n-- %s\n", part.title)
		}
		for _, n := range part.notices {
			fmt.Fprintln(&b, n)
		}
	}
	return b.String()
}

func checkGolden(t *testing.T, source, path, got string) {
	t.Helper()
	if *updateQuick {
		if err := os.WriteFile(filepath.Join(source, path), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestFilesThatPeopleHaveAreRead(t *testing.T) {
	source, err := filepath.Abs("testdata/wgquick")
	if err != nil {
		t.Fatal(err)
	}
	quickCorpus(t)
	quickEnv(t)
	for _, path := range corpusFiles(t, "read/*.conf") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := ParseFile(path)
			if err != nil {
				t.Fatalf("read:\n%v", err)
			}
			checkGolden(t, source, strings.TrimSuffix(path, ".conf")+".golden", transcript(f))
			if _, err := f.Config.Normalized(); err != nil {
				t.Errorf("the Config read cannot be obeyed: %v", err)
			}
			checkRoundTrip(t, f)
		})
	}
}

func TestFilesThatCannotBeObeyedAreRefusedLineByLine(t *testing.T) {
	source, err := filepath.Abs("testdata/wgquick")
	if err != nil {
		t.Fatal(err)
	}
	quickCorpus(t)
	quickEnv(t)
	for _, path := range corpusFiles(t, "refused/*.conf") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := ParseFile(path)
			if err == nil || f != nil {
				t.Fatalf("read as\n%s", transcript(f))
			}
			checkGolden(t, source, strings.TrimSuffix(path, ".conf")+".golden", err.Error()+"\n")
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				var problem *ParseError
				if !errors.As(e, &problem) || strings.Contains(e.Error(), "\n") {
					t.Errorf("%#v is not a ParseError of one line", e)
				}
			}
		})
	}
}

// sameFile compares what two files say, wherever it stands.
func sameFile() cmp.Option {
	return cmp.Options{
		compareSecrets(),
		cmpopts.IgnoreFields(File{}, "Path", "Ignored", "Warnings", "Where"),
		cmpopts.IgnoreFields(PeerConfig{}, "Source"),
		cmpopts.IgnoreFields(Section{}, "Line"),
		cmpopts.IgnoreFields(KeyValue{}, "Line"),
		cmpopts.EquateEmpty(),
	}
}

// checkRoundTrip is the law of Format: what it writes is read as the same file, without a
// remark, and written the same again.
func checkRoundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, f *File) {
	t.Helper()
	text := f.Format()
	again, err := Parse("formatted.conf", bytes.NewReader(text), ParseOptions{Open: openNothing, LookupEnv: emptyEnv})
	if err != nil {
		t.Fatalf("what Format wrote is not read: %v\n%s", err, text)
	}
	if diff := cmp.Diff(f, again, sameFile()); diff != "" {
		t.Fatalf("what Format wrote is read as another file (-want +got):\n%s\n%s", diff, text)
	}
	if again := again.Format(); !bytes.Equal(text, again) {
		t.Fatalf("Format wrote\n%s\nand then\n%s", text, again)
	}
}

func TestFileSaysWhereItsInterfaceIsSet(t *testing.T) {
	f, err := Parse("wg0.conf", strings.NewReader("[Interface]\nPrivateKey = "+testKey(1).Reveal()+"\nAddress = 10.0.0.2/24\n\nListenPort = 51820\nAddress = 10.0.0.3/24\n"), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"PrivateKey": "wg0.conf:2", "ListenPort": "wg0.conf:5", "Address": "wg0.conf:6"}
	if diff := cmp.Diff(want, f.Where); diff != "" {
		t.Errorf("where (-want +got):\n%s", diff)
	}
}
