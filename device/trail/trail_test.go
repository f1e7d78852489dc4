package trail

import (
	"os"
	"path/filepath"
	"testing"
)

// A mounted ConfigMap: the link ..data is what is swapped.
func TestALinkOnTheWayDecides(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Mkdir(at("..2026"), 0o755),
		os.WriteFile(at("..2026/a.yaml"), nil, 0o644),
		os.Symlink("..2026", at("..data")),
		os.Symlink("..data/a.yaml", at("a.yaml")),
		os.Symlink("round", at("round")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name    string
		at      string // "": it is not there
		passed  []string
		folders []string
	}{
		{"a.yaml", "..2026/a.yaml", []string{"a.yaml", "..data", "..2026", "..2026/a.yaml"}, []string{".", "..2026"}},
		{"..data", "..2026", []string{"..data", "..2026"}, []string{"."}},
		{"gone/b.yaml", "", []string{"gone", "gone/b.yaml"}, []string{"."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			way := New()
			got, there := way.Follow(at(tt.name))
			if there != (tt.at != "") || there && got != at(tt.at) {
				t.Errorf("leads to %q, %v", got, there)
			}
			for _, name := range tt.passed {
				if !way.Passed[at(name)] {
					t.Errorf("%s is not passed", name)
				}
			}
			for _, name := range tt.folders {
				if !way.Folders[at(name)] {
					t.Errorf("folder %s is not watched", name)
				}
			}
		})
	}
	way := New()
	way.Follow(at("round")) // it ends
	if !way.Passed[at("round")] {
		t.Error("a link to itself is not passed")
	}
}
