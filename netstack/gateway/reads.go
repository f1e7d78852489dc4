package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxFile is more than any configuration needs and little enough to read into memory.
	maxFile = 16 << 20
	// loadTime is how long reading all files may take. A file system that hangs, such as a
	// mount of a server that is gone, takes for ever.
	loadTime = 10 * time.Second
)

// reads remembers what the files of one Load held, so that the watcher can tell a change
// from a touch.
type reads struct {
	files  map[string]digest // by path as it was asked for
	modes  map[string]fs.FileMode
	strict bool // of a plan: nothing but regular files
	at     atomic.Pointer[string]
}

// digest stands for a file's content, or for the reason that it has none.
type digest struct {
	sum [sha256.Size]byte
	err string
}

func newReads() *reads {
	return &reads{files: make(map[string]digest), modes: make(map[string]fs.FileMode)}
}

// ReadFile is os.ReadFile with a bound on the size, and with a memory.
func (r *reads) ReadFile(path string) ([]byte, error) {
	f, err := r.Open(path)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// Open reads the whole file, so that what is remembered is what is parsed.
func (r *reads) Open(path string) (fs.File, error) {
	f, _, err := r.open(path)
	return f, err
}

// open is Open that gives what it has read, too.
func (r *reads) open(path string) (fs.File, []byte, error) {
	r.at.Store(&path)
	b, info, err := readBounded(path, r.strict)
	r.files[path] = digestOf(b, err)
	if err != nil {
		return nil, nil, err
	}
	r.modes[path] = info.Mode()
	return &readFile{bytes.NewReader(b), info}, b, nil
}

// readFile is a file that was read.
type readFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f *readFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *readFile) Close() error               { return nil }

// readBounded reads a regular file. A pipe or a device could make it wait for ever, and is read
// only where whoever started the process has handed it over, as a shell does for <(…), and for
// no longer than loadTime.
func readBounded(path string, strict bool) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO without a writer is opened at once
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !mode.IsRegular() && (strict || !handedOver(path)):
		return nil, nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	case !mode.IsRegular():
		_ = f.SetReadDeadline(time.Now().Add(loadTime)) // where it can have none, it is no pipe
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d MiB: this is no configuration", maxFile>>20)}
	}
	return b, info, err
}

var errNotRegular = errors.New("it is a pipe, a socket or a device, and no regular file")

// handedOver reports whether a path names an open file of this process.
func handedOver(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/")
}

// elsewhere has read done on a goroutine of its own, and gives up on it after the patience. At
// most cap(places) of them are under way, the lost ones included.
func elsewhere[T any](ctx context.Context, places chan struct{}, patience time.Duration, read func() T) (v T, err error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case places <- struct{}{}:
	case <-late.C:
		return v, errHangs
	case <-ctx.Done():
		return v, ctx.Err()
	}
	done := make(chan T, 1)
	go func() {
		defer func() { <-places }()
		done <- read()
	}()
	select {
	case v = <-done:
		return v, nil
	case <-late.C:
		return v, errHangs
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

var errHangs = errors.New("reading takes too long")

// loaded is load, given up on when it hangs.
func (g *Gateway) loaded(ctx context.Context, s Sources, r *reads, places chan struct{}) (*loader, error) {
	l, err := elsewhere(ctx, places, g.patience, func() *loader { return g.load(s, r) })
	if errors.Is(err, errHangs) {
		path := "the configuration"
		if at := r.at.Load(); at != nil {
			path = *at
		}
		return nil, &Error{Source: path, Reason: fmt.Sprintf("cannot be read within %s: is it on a file system that hangs?", g.patience), cause: err}
	}
	return l, err
}

func digestOf(b []byte, err error) digest {
	if err != nil {
		return digest{err: err.Error()}
	}
	return digest{sum: sha256.Sum256(b)}
}

// again reads the same files once more. A pipe can be read only once, so it is taken to be
// what it was.
func (r *reads) again() *reads {
	now := newReads()
	for path, was := range r.files {
		if info, err := os.Stat(path); handedOver(path) && err == nil && !info.Mode().IsRegular() {
			now.files[path] = was
			continue
		}
		_, _ = now.ReadFile(path) // an error is part of the digest
	}
	return now
}

// paths returns the files that were read or looked for, sorted.
func (r *reads) paths() []string { return slices.Sorted(maps.Keys(r.files)) }

func (r *reads) equal(other *reads) bool { return maps.Equal(r.files, other.files) }

// missing reports whether a file could not be read.
func (r *reads) missing() bool {
	for _, d := range r.files {
		if d.err != "" {
			return true
		}
	}
	return false
}
