// Package trail tells which paths and folders decide where the name of a file leads, so that a
// program that watches files sees what happens to each of them: a link that is swapped, a folder
// that is replaced, a file that comes back. It is for whoever watches configuration, imports
// nothing of the repository, and keeps nothing: what it finds is true at the moment it looks.
package trail

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds the symbolic links on the way to one file, as the kernel does.
const maxLinks = 40

// Trail collects what decides where names lead. It is not safe for use by several goroutines.
//
//	/etc/mesh/a.yaml -> ..data/a.yaml
//	/etc/mesh/..data -> ..2026_01_02/        the link that is swapped
//	/etc/mesh/..2026_01_02/a.yaml
type Trail struct {
	Passed  map[string]bool // each path on the way
	Folders map[string]bool // whose entries decide where a name leads
}

// New returns a Trail of no name yet.
func New() Trail { return Trail{make(map[string]bool), make(map[string]bool)} }

// Follow walks to a file or folder, component by component as the kernel does, and returns
// where it is. Of one that is not there, the paths it would have are passed.
func (t Trail) Follow(name string) (at string, there bool) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", false
	}
	at, rest, links := "/", name, 0
	for rest != "" {
		var entry string
		entry, rest, _ = strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		if entry == "" {
			continue
		}
		next := filepath.Join(at, entry)
		t.Passed[next] = true
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			t.Folders[at] = true
			t.missing(next, rest)
			return "", false
		case info.Mode()&os.ModeSymlink != 0 && links < maxLinks:
			links++
			t.Folders[at] = true
			at, rest = jump(at, next, rest)
		case rest == "":
			t.Folders[at] = true
			at = next
		default:
			at = next
		}
	}
	return at, true
}

// jump goes where a link leads and takes the rest of the path along.
func jump(at, link, rest string) (newAt, newRest string) {
	to, err := os.Readlink(link)
	if err != nil {
		return at, ""
	}
	if filepath.IsAbs(to) {
		at = "/"
	}
	return at, strings.TrimSuffix(to+"/"+rest, "/")
}

// missing notes the paths that the file would have if it came back.
func (t Trail) missing(next, rest string) {
	for entry := range strings.SplitSeq(rest, "/") {
		next = filepath.Join(next, entry)
		t.Passed[next] = true
	}
}
