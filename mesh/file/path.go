package file

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds the symbolic links on the way to one file, as the kernel does.
const maxLinks = 40

// path collects what decides where names lead.
//
//	/etc/mesh/a.yaml -> ..data/a.yaml
//	/etc/mesh/..data -> ..2026_01_02/        the link that is swapped
//	/etc/mesh/..2026_01_02/a.yaml
type path struct {
	trail   map[string]bool // each path that is passed
	folders map[string]bool // whose entries decide where a name leads
}

// follow walks to a file or folder, component by component as the kernel does, and returns
// where it is.
func (p path) follow(name string) (at string, there bool) {
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
		p.trail[next] = true
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			p.folders[at] = true
			p.missing(next, rest)
			return "", false
		case info.Mode()&os.ModeSymlink != 0 && links < maxLinks:
			links++
			p.folders[at] = true
			at, rest = jump(at, next, rest)
		case rest == "":
			p.folders[at] = true
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
func (p path) missing(next, rest string) {
	for entry := range strings.SplitSeq(rest, "/") {
		next = filepath.Join(next, entry)
		p.trail[next] = true
	}
}
