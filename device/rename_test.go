package device

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stillwire/stillwire/device/devicetest"
)

func TestRenameTakesSocketAndStateFileAlong(t *testing.T) {
	net := devicetest.NewNetwork(devicetest.Options{})
	t.Cleanup(net.Close)
	dir := t.TempDir()
	a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.StateDir = dir })
	if err := a.ListenUAPI(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.savePath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "wg0.sock")
	if err := a.Rename("office"); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, filepath.Join(dir, "office.sock"), "get=1\n\n"); !strings.Contains(got, "errno=0") {
		t.Errorf("answer on the new socket: %q", got)
	}
	for _, gone := range []string{path, filepath.Join(dir, "wg0.endpoints.json")} {
		if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "office.endpoints.json")); err != nil || a.Name() != "office" {
		t.Errorf("state file: %v, name %s", err, a.Name())
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.sock")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRenameToATakenNameChangesNothing(t *testing.T) {
	a, b, path := socketNodes(t, "wg0")
	if err := b.Rename("office"); err != nil {
		t.Fatal(err)
	}
	if err := b.ListenUAPI(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := a.Rename("office"); err == nil || !strings.Contains(err.Error(), "office.sock: another process serves it") {
		t.Errorf("error %v", err)
	}
	if got := ask(t, path, "get=1\n\n"); !strings.Contains(got, "errno=0") || a.Name() != "wg0" {
		t.Errorf("answer on the old socket: %q, name %s", got, a.Name())
	}
}
