package file

import (
	"fmt"
	"io/fs"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// content is what one file says. It is not changed once read.
type content struct {
	nodes    []mesh.Node
	peers    []mesh.Peer
	settings []settingsObject
	problems []mesh.Problem
	// broken says that the file could not be read to its end: what is absent may be there.
	broken bool
	// unsettled says that the file has settings that cannot be obeyed.
	unsettled bool
	// asides are the other files that were looked at: those with keys.
	asides []aside
}

// settingsObject is one Mesh document.
type settingsObject struct {
	mesh.Identity
	mesh.Settings
}

// aside is a file that another one names.
type aside struct {
	path string
	info fs.FileInfo // nil: it could not be opened
}

// after is what counts of a file that said before what it says no more, or not readably.
func (c content) after(before content) content {
	switch {
	case c.broken:
		c.nodes, c.peers, c.settings = before.nodes, before.peers, before.settings
		c.broken, c.unsettled, c.asides = false, before.unsettled, before.asides
	case c.unsettled:
		c.settings, c.unsettled = before.settings, before.unsettled
	}
	return c
}

// reader reads one file.
type reader struct {
	name    string      // in positions
	dir     string      // where relative paths start
	info    fs.FileInfo // of the file; nil: it is none
	private bool        // nobody but the owner can read it, so it may hold secrets
	status  string      // the node whose status file it is; "": it is none
	most    int         // YAML nodes that may be looked at
	left    int         // of these
	content
}

func newReader(name, dir string) *reader {
	return &reader{name: scan.OneLine(name), dir: dir, most: maxNodes, left: maxNodes}
}

func (r *reader) at(line int) string { return fmt.Sprintf("%s:%d", r.name, line) }

// note adds a problem, up to a number that an operator could still read.
func (r *reader) note(p mesh.Problem) {
	switch {
	case len(r.problems) < maxProblems:
		r.problems = append(r.problems, p)
	case len(r.problems) == maxProblems:
		r.problems = append(r.problems, mesh.Problem{
			Subject: mesh.Subject{Kind: mesh.KindSource, Name: r.name, Source: r.name},
			Reason:  mesh.Invalid,
			Detail:  "has more problems than are shown",
			Remedy:  "mend those that are shown first",
		})
	}
}

// refuseFile is for what is wrong with the file and no object of it.
func (r *reader) refuseFile(line int, field, value, detail, remedy string) {
	source := r.name
	if line > 0 {
		source = r.at(line)
	}
	r.note(mesh.Problem{
		Subject: mesh.Subject{Kind: mesh.KindSource, Name: r.name, Source: source},
		Field:   field, Value: value, Reason: mesh.Invalid, Detail: detail, Remedy: remedy,
	})
}
