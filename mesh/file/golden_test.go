package file

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/stillwire/stillwire/mesh"
)

var updateGolden = flag.Bool("update-file", false, "write the golden files of testdata/load anew")

// Each archive of testdata/load is a directory, and in its last file, "want", what Load makes
// of it. A mode may stand behind the name of a file.
func TestDirectoriesAreReadAsAnOperatorWouldSay(t *testing.T) {
	paths, err := filepath.Glob("testdata/load/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			must(t, err)
			dir := t.TempDir()
			var inputs []txtar.File
			want := ""
			for _, f := range archive.Files {
				if f.Name == "want" {
					want = string(f.Data)
					continue
				}
				inputs = append(inputs, f)
				unpack(t, dir, f)
			}
			u, err := Load(dir)
			must(t, err)
			got := told(t, u)
			checkSecrets(t, u, got)
			if *updateGolden {
				archive.Files = append(inputs, txtar.File{Name: "want", Data: []byte(got)})
				must(t, os.WriteFile(path, txtar.Format(archive), 0o644))
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is read (-want +got):\n%s", diff)
			}
		})
	}
}

func unpack(t *testing.T, dir string, f txtar.File) {
	t.Helper()
	name, mode := f.Name, uint64(0o644)
	if i := strings.LastIndexByte(f.Name, ' '); i > 0 {
		if m, err := strconv.ParseUint(f.Name[i+1:], 8, 32); err == nil {
			name, mode = f.Name[:i], m
		}
	}
	write(t, filepath.Join(dir, name), strings.ReplaceAll(string(f.Data), "NUL", "\x00"))
	must(t, os.Chmod(filepath.Join(dir, name), fs.FileMode(mode)))
}

// told is an update as an operator would read it.
func told(t *testing.T, u mesh.Update) string {
	t.Helper()
	var b bytes.Buffer
	must(t, Write(&b, u))
	for _, p := range u.Peers {
		if !p.PresharedKey.IsZero() {
			fmt.Fprintf(&b, "# peer %s has a preshared key\n", p.Name)
		}
	}
	if !u.Synced {
		b.WriteString("# not all could be read: what is absent may be there\n")
	}
	for _, p := range u.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.Reason, p)
	}
	return b.String()
}

// checkSecrets looks for the keys of the goldens that nobody may see: all begin so.
func checkSecrets(t *testing.T, u mesh.Update, text string) {
	t.Helper()
	if strings.Contains(text+fmt.Sprintf("%v %+v %#v", u, u, u), "SECRET") {
		t.Errorf("a secret is shown:\n%s", text)
	}
}
