package gateway

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device/trail"
)

// quiet is how long files must rest before they are looked at: editors and the kubelet make
// several steps of one change.
const quiet = 200 * time.Millisecond

// longest is how long they are waited for: something may write to one of them all the time.
const longest = 2 * time.Second

// watcher says when files may have changed. It watches the folders that the files are in
// and not the files themselves, for editors put a new file in the place of the old one, and
// a mounted ConfigMap changes by the swap of a link, ..data, that all its files go through:
//
//	/etc/gateway/wg0.conf -> ..data/wg0.conf
//	/etc/gateway/..data   -> ..2026_01_02/        the link that is swapped
//	/etc/gateway/..2026_01_02/wg0.conf
type watcher struct {
	log     zerolog.Logger
	fs      *fsnotify.Watcher
	paths   chan []string // what to watch from now on
	changed chan struct{} // size 1: look again

	files  []string        // owned by run, as are those below
	trail  map[string]bool // each path that is passed on the way to a file
	folder map[string]bool // what fs watches
	lost   map[string]bool // what it cannot watch, as was said
}

func newWatcher(log zerolog.Logger) (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &watcher{
		log:     log,
		fs:      fs,
		paths:   make(chan []string, 1),
		changed: make(chan struct{}, 1),
		folder:  make(map[string]bool),
		lost:    make(map[string]bool),
	}, nil
}

// watch sets the files. It never blocks; the last call counts.
func (w *watcher) watch(paths []string) {
	for {
		select {
		case w.paths <- paths:
			return
		case <-w.paths:
		}
	}
}

// run owns the watch until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.fs.Close()
	rest := time.NewTimer(quiet)
	defer rest.Stop()
	var first time.Time // of the changes that are waited out; zero: none
	hold := func() {
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		rest.Reset(min(quiet, max(longest-now.Sub(first), 0)))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case w.files = <-w.paths:
			w.arm()
			hold() // what changed between reading and watching
		case event := <-w.fs.Events:
			if w.trail[event.Name] {
				hold()
			}
		case err := <-w.fs.Errors:
			w.log.Debug().Err(err).Msg("file events were lost, so all files are looked at")
			hold()
		case <-rest.C:
			first = time.Time{}
			w.arm() // links lead elsewhere now, folders came and went
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// arm makes fs watch the folders that matter now.
func (w *watcher) arm() {
	way := trail.New()
	for _, path := range w.files {
		way.Follow(path)
	}
	w.trail = way.Passed
	want := way.Folders
	for dir, watched := range w.folder {
		if !watched {
			continue
		}
		if !want[dir] || !w.watches(dir) {
			_ = w.fs.Remove(dir) // it is gone, or of no interest
			delete(w.folder, dir)
		}
	}
	for dir := range want {
		if w.folder[dir] {
			continue
		}
		err := w.fs.Add(dir)
		if err != nil && !w.lost[dir] {
			w.log.Warn().Err(err).Str("folder", dir).Msg("folder is not watched: changes of its files need SIGHUP")
		}
		w.folder[dir], w.lost[dir] = err == nil, err != nil
	}
}

// watches reports whether fs still holds the folder: it lets go of one that is removed or
// renamed.
func (w *watcher) watches(dir string) bool {
	for _, held := range w.fs.WatchList() {
		if held == dir {
			return true
		}
	}
	return false
}
