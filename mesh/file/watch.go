package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device/trail"
	"github.com/stillwire/stillwire/mesh"
)

const (
	// quiet is how long files must rest before they are looked at: editors and the kubelet
	// make several steps of one change.
	quiet = 50 * time.Millisecond
	// longest bounds the wait for quiet, for in a mesh of a thousand nodes some status is
	// always being written.
	longest = 150 * time.Millisecond
	// pollEvery is how often all is looked at where the kernel does not tell.
	pollEvery = 2 * time.Second
)

// watch says when to look. It watches folders and not files, for what matters is which file a
// name leads to: editors put a new file in the place of the old one, and a mounted ConfigMap
// changes by the swap of a link, ..data, that all its files go through.
type watch struct {
	dir    string
	resync time.Duration
	log    zerolog.Logger
	notify func() (*fsnotify.Watcher, error)

	fs      *fsnotify.Watcher      // nil: the kernel gives none
	folders map[string]fs.FileInfo // that are watched, as they were then
	trail   map[string]bool        // each path that is passed on the way to a file
	inside  map[string]bool        // folders in which each manifest counts
	blind   error                  // why something is not watched; nil: all is

	restAt, restMax time.Time // when files rest, and when we look in any case; zero: no event
	lookAt          time.Time // when we look without an event; zero: never
	confirmAt       time.Time // when we look again for what is gone; zero: nothing is
}

func newWatch(s *Source) *watch {
	return &watch{dir: s.dir, resync: s.resync, log: s.log, notify: s.notify, folders: make(map[string]fs.FileInfo)}
}

func (w *watch) close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}

// wait returns true when it is time to look, and false when ctx is done.
func (w *watch) wait(ctx context.Context, l *lookout) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next := w.next(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		events, failures := w.channels()
		select {
		case <-ctx.Done():
			return false
		case e := <-events:
			if w.matters(e.Name) {
				l.folder.fresh[filepath.Base(e.Name)] = true
				w.stir()
			}
		case err := <-failures:
			w.log.Debug().Err(err).Msg("file events were lost, so all files are read")
			l.folder.all = true
			w.stir()
		case <-timer.C:
			if next := w.next(); next.IsZero() || time.Now().Before(next) {
				continue
			}
			w.restAt = time.Time{}
			return true
		}
	}
}

func (w *watch) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.fs == nil {
		return nil, nil
	}
	return w.fs.Events, w.fs.Errors
}

// next is when to look; zero when only an event can tell.
func (w *watch) next() (next time.Time) {
	for _, at := range []time.Time{w.restAt, w.lookAt, w.confirmAt} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// stir notes that something changed now.
func (w *watch) stir() {
	now := time.Now()
	if w.restAt.IsZero() {
		w.restMax = now.Add(longest)
	}
	w.restAt = now.Add(quiet)
	if w.restAt.After(w.restMax) {
		w.restAt = w.restMax
	}
}

// confirmed reports, once, that the time has come to look again for what is gone.
func (w *watch) confirmed() bool {
	if w.confirmAt.IsZero() || time.Now().Before(w.confirmAt) {
		return false
	}
	w.confirmAt = time.Time{}
	return true
}

// matters reports whether an event could change what is read.
func (w *watch) matters(path string) bool {
	return w.trail[path] || w.inside[filepath.Dir(path)] && isManifest(filepath.Base(path))
}

// arm watches the folders that matter now: the directory, that of the statuses, and those on
// the way to other files.
func (w *watch) arm(files []string) {
	w.blind = nil
	want := w.survey(files)
	if w.fs == nil {
		if w.fs, w.blind = w.notify(); w.blind != nil {
			w.fs = nil
		}
	}
	if w.fs != nil {
		w.forget(want)
		for folder, info := range want {
			w.add(folder, info)
		}
	}
	w.lookAt = time.Time{}
	switch {
	case w.blind != nil:
		w.lookAt = time.Now().Add(pollEvery)
	case w.resync > 0:
		w.lookAt = time.Now().Add(w.resync)
	}
}

// survey returns the folders to watch, as they are now.
func (w *watch) survey(files []string) map[string]fs.FileInfo {
	way := trail.New()
	w.inside = make(map[string]bool)
	for _, dir := range []string{w.dir, filepath.Join(w.dir, statusDir)} {
		if at, there := way.Follow(dir); there {
			way.Folders[at], w.inside[at] = true, true
		}
	}
	for _, file := range files {
		way.Follow(file)
	}
	w.trail = way.Passed
	want := make(map[string]fs.FileInfo)
	for folder := range way.Folders {
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			want[folder] = info
		}
	}
	return want
}

// forget lets go of folders that are of no interest any more, or no longer what they were.
func (w *watch) forget(want map[string]fs.FileInfo) {
	held := make(map[string]bool)
	for _, folder := range w.fs.WatchList() {
		held[folder] = true
	}
	for folder, was := range w.folders {
		if now := want[folder]; now == nil || !held[folder] || !os.SameFile(now, was) {
			_ = w.fs.Remove(folder) // the kernel may have let go of it already
			delete(w.folders, folder)
		}
	}
}

// add watches a folder. What changed in it since it was looked at is looked at soon.
func (w *watch) add(folder string, info fs.FileInfo) {
	if w.folders[folder] != nil {
		return
	}
	err := w.fs.Add(folder)
	switch {
	case err == nil:
		w.folders[folder] = info
		w.stir()
	case errors.Is(err, fs.ErrNotExist):
		w.stir()
	default:
		w.blind = fmt.Errorf("watch %s: %w", folder, err)
	}
}

// problems says that changes are found late.
func (w *watch) problems() []mesh.Problem {
	if w.blind == nil {
		return nil
	}
	remedy := "let this process read the folder"
	switch {
	case errors.Is(w.blind, syscall.ENOSPC):
		remedy = "raise the sysctl fs.inotify.max_user_watches"
	case errors.Is(w.blind, syscall.EMFILE):
		remedy = "raise the sysctl fs.inotify.max_user_instances, or the process's limit of open files"
	}
	return []mesh.Problem{{
		Subject: mesh.Subject{Kind: mesh.KindSource, Name: sourceName, Source: w.dir},
		Reason:  mesh.Unsupported,
		Detail:  fmt.Sprintf("cannot be watched (%s), so they are looked at every %s", w.blind, pollEvery),
		Remedy:  remedy,
	}}
}
