package file

import (
	"reflect"
	"time"

	"github.com/stillwire/stillwire/mesh"
)

// confirmAfter is how long what is gone must stay away before it counts as removed on purpose:
// longer than a program takes that writes a file in place, or two files one after the other.
const confirmAfter = 2 * time.Second

// lookout is one Run: it looks whenever the watch says so, and hands over what is new.
type lookout struct {
	folder *folder
	watch  *watch
	put    func(mesh.Update)
	begun  bool        // last counts
	last   mesh.Update // handed over last
	known  mesh.Update // the last one that was not Down
}

// turn looks once.
func (l *lookout) turn() {
	confirm := l.watch.confirmed()
	u := l.folder.look()
	l.watch.arm(l.folder.aside())
	u.Problems = append(u.Problems, l.watch.problems()...)
	if !l.begun || !reflect.DeepEqual(u, l.last) {
		if u.Down == "" && (!l.begun || lacks(u, l.known)) {
			l.watch.confirmAt = time.Now().Add(confirmAfter)
			confirm = false
		}
		l.begun, l.last = true, u
		l.put(u)
	}
	if u.Down != "" {
		return
	}
	l.known = u
	if !confirm {
		return
	}
	if !u.Synced || len(l.folder.files) == 0 { // an empty directory may be one that is not mounted
		return
	}
	u.Confirmed = true
	l.put(u)
}

// lacks reports whether a member that was known is gone. Both lists are sorted by name.
func lacks(u, known mesh.Update) bool {
	return missing(u.Nodes, known.Nodes, func(n mesh.Node) string { return n.Name }) ||
		missing(u.Peers, known.Peers, func(p mesh.Peer) string { return p.Name })
}

func missing[T any](now, before []T, name func(T) string) bool {
	i := 0
	for _, one := range before {
		for i < len(now) && name(now[i]) < name(one) {
			i++
		}
		if i == len(now) || name(now[i]) != name(one) {
			return true
		}
	}
	return false
}
