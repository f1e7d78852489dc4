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
	last   mesh.Update // handed over last, whether confirmed or not
	synced bool        // known counts
	known  mesh.Update // the last one that was synced
	doubt  bool        // what is absent from known has not been seen to be so twice
}

// turn looks once, and hands over what is new, and once more what was absent twice.
func (l *lookout) turn() {
	again := l.watch.confirmed()
	u := l.folder.look()
	l.watch.arm(l.folder.aside())
	u.Problems = append(u.Problems, l.watch.problems()...)
	if !l.begun || !reflect.DeepEqual(u, l.last) {
		l.begun, l.last = true, u
		l.put(u)
	}
	if !u.Synced {
		return
	}
	less := !l.synced || lacks(u, l.known)
	l.synced, l.known = true, u
	switch {
	case less || l.doubt && !again:
		l.expect(less)
	case l.doubt && len(l.folder.files) > 0: // an empty directory may be one that is not mounted
		l.doubt = false
		u.Confirmed = true
		l.put(u)
	}
}

// expect has the watch look again for what is gone, from now on if more is.
func (l *lookout) expect(more bool) {
	l.doubt = true
	if more || l.watch.confirmAt.IsZero() {
		l.watch.confirmAt = time.Now().Add(confirmAfter)
	}
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
