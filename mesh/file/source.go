package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/mesh"
)

// Options of a Source.
type Options struct {
	// Dir is the directory of manifests. It need not be there yet.
	Dir string
	// Resync is how often all files are looked at also without an event; 0: never. It is needed
	// where the file system does not tell of what other machines change, as NFS does not.
	Resync time.Duration
	// Log is told of changes of the watch itself. Problems are in the updates.
	Log zerolog.Logger
}

// Source is a directory of manifests, as a mesh.Source and a mesh.Publisher.
type Source struct {
	dir    string
	resync time.Duration
	log    zerolog.Logger
	notify func() (*fsnotify.Watcher, error) // fsnotify.NewWatcher
}

var (
	_ mesh.Source    = (*Source)(nil)
	_ mesh.Publisher = (*Source)(nil)
)

// New returns a Source that has looked at nothing yet.
func New(o Options) *Source {
	return &Source{dir: o.Dir, resync: o.Resync, log: o.Log, notify: fsnotify.NewWatcher}
}

// Load reads the directory once. What cannot be obeyed is in the update's problems; the error
// says that the directory itself cannot be read.
func Load(dir string) (mesh.Update, error) {
	u := newFolder(dir).look()
	if u.Down != "" {
		return mesh.Update{}, errors.New(u.Down)
	}
	return u, nil
}

// Read reads one stream of documents. The name stands in positions, its folder is where
// relative paths start, and .conf at its end says that it is a wg-quick file. What cannot be
// obeyed is in the update's problems; the error is that of r.
//
// A preshared key may stand in the stream itself unless r is a regular file that others than
// its owner may read.
func Read(name string, r io.Reader) (mesh.Update, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return mesh.Update{}, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return mesh.Update{}, fmt.Errorf("read %s: it is larger than %d bytes", name, maxFile)
	}
	in := newReader(name, filepath.Dir(name))
	in.info = regular(r)
	in.private = in.info == nil || in.info.Mode().Perm()&0o077 == 0
	in.readText(text)
	return merge([]content{in.content}, nil), nil
}

// regular returns what is known of the regular file that r is, nil when it is none.
func regular(r io.Reader) fs.FileInfo {
	f, ok := r.(fs.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	return info
}

// Run hands over what the directory says, at first and after each change, until ctx is done.
// What is missing, at first or compared with before, is looked for again after two seconds,
// and if it is still missing the update is handed over once more as Confirmed.
//
// Its error is always nil: a directory that cannot be read is an update that is Down.
func (s *Source) Run(ctx context.Context, put func(mesh.Update)) error {
	l := &lookout{folder: newFolder(s.dir), watch: newWatch(s), put: put}
	defer l.watch.close()
	l.watch.arm(nil)
	for l.turn(); l.watch.wait(ctx, l); l.turn() {
	}
	return nil
}
