package gateway

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// watching is a running watcher and what it watches.
type watching struct {
	*watcher
	t *testing.T
}

func startWatch(t *testing.T, paths ...string) watching {
	t.Helper()
	w, err := newWatcher(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.watch(paths)
	x := watching{w, t}
	x.expect("the first look after the watch began")
	return x
}

// expect waits until the watcher says that files may have changed.
func (w watching) expect(why string) {
	w.t.Helper()
	select {
	case <-w.changed:
	case <-time.After(10 * time.Second):
		w.t.Fatalf("no change seen: %s", why)
	}
}

// silent waits for a later change of another file and wants to see that one alone.
func (w watching) silent() {
	w.t.Helper()
	select {
	case <-w.changed:
		w.t.Fatal("a change seen where none was")
	case <-time.After(2 * quiet):
	}
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWatcherSeesEveryWayToChangeAFile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		path   string // watched, inside the folder
		setup  func(t *testing.T, dir string)
		change func(t *testing.T, dir string)
	}{
		{"written in place", "a/wg0.conf", func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/wg0.conf", "1")
		}, func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/wg0.conf", "2")
		}},
		{"replaced by rename, as editors do", "a/wg0.conf", func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/wg0.conf", "1")
		}, func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/.wg0.conf.swp", "2")
			mustDo(t, os.Rename(dir+"/a/.wg0.conf.swp", dir+"/a/wg0.conf"))
		}},
		{"removed", "a/wg0.conf", func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/wg0.conf", "1")
		}, func(t *testing.T, dir string) {
			mustDo(t, os.Remove(dir+"/a/wg0.conf"))
		}},
		{"made where there was none", "a/b/wg0.conf", func(t *testing.T, dir string) {
			mustDo(t, os.MkdirAll(dir+"/a", 0o700))
		}, func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/b/wg0.conf", "1")
		}},
		{"..data link of a ConfigMap swapped", "cm/wg0.conf", func(t *testing.T, dir string) {
			writeFile(t, dir+"/cm/..2026_1/wg0.conf", "1")
			mustDo(t, os.Symlink("..2026_1", dir+"/cm/..data"), os.Symlink("..data/wg0.conf", dir+"/cm/wg0.conf"))
		}, func(t *testing.T, dir string) {
			swapData(t, dir+"/cm", "..2026_2", map[string]string{"wg0.conf": "2"})
		}},
		{"behind a link to another folder", "wg0.conf", func(t *testing.T, dir string) {
			writeFile(t, dir+"/real/wg0.conf", "1")
			mustDo(t, os.Symlink(dir+"/real/wg0.conf", dir+"/wg0.conf"))
		}, func(t *testing.T, dir string) {
			writeFile(t, dir+"/real/wg0.conf", "2")
		}},
		{"its folder replaced by another", "a/wg0.conf", func(t *testing.T, dir string) {
			writeFile(t, dir+"/a/wg0.conf", "1")
			writeFile(t, dir+"/b/wg0.conf", "2")
		}, func(t *testing.T, dir string) {
			mustDo(t, os.Rename(dir+"/a", dir+"/old"), os.Rename(dir+"/b", dir+"/a"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tc.setup(t, dir)
			w := startWatch(t, filepath.Join(dir, tc.path))
			tc.change(t, dir)
			w.expect("the change")
			writeFile(t, filepath.Join(dir, tc.path), "3")
			w.expect("a write after the change")
			w.silent()
		})
	}
}

// swapData replaces what a mounted ConfigMap holds, in the steps of the kubelet.
func swapData(t *testing.T, dir, generation string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, generation, name), text)
	}
	old, err := os.Readlink(filepath.Join(dir, "..data"))
	mustDo(t, err)
	tmp := filepath.Join(dir, "..data_tmp")
	mustDo(t, os.Symlink(generation, tmp), os.Rename(tmp, filepath.Join(dir, "..data")), os.RemoveAll(filepath.Join(dir, old)))
}

func TestWatcherIsSilentAboutOtherFiles(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/wg0.conf", "1")
	w := startWatch(t, dir+"/wg0.conf")
	writeFile(t, dir+"/other.conf", "1")
	w.silent()
}

func TestWatcherFollowsItsLastOrders(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/a/1", "1")
	writeFile(t, dir+"/b/2", "1")
	w := startWatch(t, dir+"/a/1")
	w.watch([]string{dir + "/b/2"})
	w.expect("the first look after new orders")
	writeFile(t, dir+"/a/1", "2")
	w.silent()
	writeFile(t, dir+"/b/2", "2")
	w.expect("the file of the new orders")
}
