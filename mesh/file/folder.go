package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stillwire/stillwire/mesh"
)

// statusDir is where nodes write.
const statusDir = "status"

// settled is how old a change must be for the time of a file to tell the next one from it.
const settled = 2 * time.Second

// folder is the directory of manifests, and what is known of its files. Files are read again
// when they changed, and not otherwise.
type folder struct {
	dir   string
	self  fs.FileInfo        // the directory when it was last read; nil: never
	files map[string]*cached // by path below dir: "a.yaml", "status/a.yaml"
	links []string           // paths of those that are symbolic links
	fresh map[string]bool    // base names to be read again, whatever their time says
	all   bool               // all are to be read again
}

// cached is a file as it was last read.
type cached struct {
	info fs.FileInfo // nil: it could not be read
	read time.Time   // when
	hash [sha256.Size]byte
	content
}

func newFolder(dir string) *folder {
	return &folder{dir: dir, files: make(map[string]*cached), fresh: make(map[string]bool)}
}

// look reads what changed and returns all that the directory says.
func (f *folder) look() mesh.Update {
	manifests, statuses, err := f.list()
	if err != nil {
		return mesh.Update{Source: sourceName, Down: err.Error()}
	}
	known := make(map[string]*cached)
	u := merge(f.read(manifests, known), f.read(statuses, known))
	f.files, f.all = known, false
	clear(f.fresh)
	return u
}

// list returns the names of the files that count, below the directory.
func (f *folder) list() (manifests, statuses []string, err error) {
	self, err := os.Stat(f.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %s", f.dir, cause(err))
	}
	f.links = nil
	manifests, err = f.listed("", isManifest)
	if err != nil {
		return nil, nil, err
	}
	statuses, err = f.listed(statusDir, isStatus)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if len(manifests) == 0 && len(f.files) > 0 && !os.SameFile(self, f.self) {
		return nil, nil, fmt.Errorf("read %s: another directory is there, and it is empty: is a file system not mounted?", f.dir)
	}
	f.self = self
	return manifests, statuses, nil
}

func (f *folder) listed(sub string, counts func(string) bool) (names []string, err error) {
	dir := filepath.Join(f.dir, sub)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() || !counts(e.Name()) {
			continue
		}
		names = append(names, filepath.Join(sub, e.Name()))
		if e.Type()&fs.ModeSymlink != 0 {
			f.links = append(f.links, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// isManifest leaves out what editors and the kubelet keep beside the files: .a.yaml.swp,
// a.yaml~, #a.yaml#, ..data.
func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json", ".conf"}, filepath.Ext(name))
}

func isStatus(name string) bool {
	return !strings.HasPrefix(name, ".") && filepath.Ext(name) == ".yaml"
}

// aside lists the files outside the directory, or below it, whose change changes what it says.
func (f *folder) aside() []string {
	paths := slices.Clone(f.links)
	for _, c := range f.files {
		for _, a := range c.asides {
			paths = append(paths, a.path)
		}
	}
	return paths
}

// read returns what the files say and notes them in known.
func (f *folder) read(names []string, known map[string]*cached) (all []content) {
	for _, name := range names {
		c := f.files[name]
		if c == nil || !f.holds(name, c) {
			if _, err := os.Lstat(filepath.Join(f.dir, name)); errors.Is(err, fs.ErrNotExist) {
				continue // gone since it was listed
			}
			c = readAgain(f.dir, name, c)
		}
		known[name] = c
		all = append(all, c.content)
	}
	return all
}

// holds reports whether a file is as it was read.
func (f *folder) holds(name string, c *cached) bool {
	if f.all || f.fresh[filepath.Base(name)] || !same(filepath.Join(f.dir, name), c.info, c.read) {
		return false
	}
	return !slices.ContainsFunc(c.asides, func(a aside) bool {
		return f.fresh[filepath.Base(a.path)] || !same(a.path, a.info, c.read)
	})
}

// same compares a file with what it was. Of a file that was changed just before it was read
// the time tells nothing: the next change may have had the same.
func same(path string, was fs.FileInfo, read time.Time) bool {
	now, err := os.Stat(path)
	if err != nil || was == nil {
		return false
	}
	return os.SameFile(was, now) && was.Size() == now.Size() && was.Mode() == now.Mode() &&
		was.ModTime().Equal(now.ModTime()) && read.Sub(was.ModTime()).Abs() > settled
}

// readAgain reads a file, of which before was known, or nil.
func readAgain(dir, name string, before *cached) *cached {
	c := &cached{read: time.Now()}
	if before != nil {
		c.content = before.content
	}
	limit := int64(maxFile)
	if isOfStatus(name) {
		limit = maxStatus
	}
	text, info, err := slurp(filepath.Join(dir, name), limit)
	if err != nil {
		r := newReader(filepath.ToSlash(name), dir)
		r.broken = true
		r.refuseFile(0, "", "", "cannot be read ("+cause(err)+"), so what it said before stays", "make it a regular file that this process may read")
		c.content = r.settle(before)
		return c
	}
	c.info, c.hash = info, sha256.Sum256(text)
	if before != nil && before.info != nil && c.hash == before.hash && before.info.Mode() == info.Mode() && len(before.asides) == 0 {
		return c
	}
	c.content = parse(dir, name, text, info).settle(before)
	return c
}

func (r *reader) settle(before *cached) content {
	if before == nil || before.content.broken {
		return r.content
	}
	return r.content.after(before.content)
}

// isOfStatus reports whether a file, by its path below the directory, is one that a node writes.
func isOfStatus(name string) bool { return filepath.Dir(name) != "." }

// parse reads the text of a file of the directory.
func parse(dir, name string, text []byte, info fs.FileInfo) *reader {
	r := newReader(filepath.ToSlash(name), filepath.Join(dir, filepath.Dir(name)))
	r.info, r.private = info, info.Mode().Perm()&0o077 == 0
	if isOfStatus(name) {
		r.most, r.left = maxSaid, maxSaid
		r.status = strings.TrimSuffix(filepath.Base(name), ".yaml")
	}
	r.readText(text)
	return r
}

// readText tells formats apart by the name.
func (r *reader) readText(text []byte) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if filepath.Ext(r.name) == ".conf" {
		r.readQuick(text)
		return
	}
	r.readDocuments(text)
}
