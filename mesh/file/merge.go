package file

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stillwire/stillwire/mesh"
)

// merge makes one update of what the manifests and the status files say.
func merge(manifests, statuses []content) mesh.Update {
	u := mesh.Update{Source: sourceName, Synced: true}
	var nodes []mesh.Node
	var settings []settingsObject
	unsettled := false
	for _, c := range manifests {
		nodes = append(nodes, c.nodes...)
		u.Peers = append(u.Peers, c.peers...)
		settings = append(settings, c.settings...)
		u.Problems = append(u.Problems, c.problems...)
		u.Synced = u.Synced && !c.broken
		unsettled = unsettled || c.unsettled
	}
	nodes = unique(&u, mesh.KindNode, nodes, func(n mesh.Node) mesh.Identity { return n.Identity })
	u.Peers = unique(&u, mesh.KindPeer, u.Peers, func(p mesh.Peer) mesh.Identity { return p.Identity })
	u.Nodes = withStatus(&u, nodes, statuses)
	for _, s := range unique(&u, mesh.KindMesh, settings, settingsObject.identity) {
		u.Settings = &s.Settings
	}
	u.Synced = u.Synced && (u.Settings != nil || !unsettled)
	return u
}

// identity of settings: there is one mesh, whatever it is called.
func (s settingsObject) identity() mesh.Identity {
	s.Name = ""
	return s.Identity
}

// unique keeps one object of each name, sorted by it: the oldest, and of one age the first.
func unique[T any](u *mesh.Update, kind mesh.Kind, all []T, identity func(T) mesh.Identity) []T {
	slices.SortStableFunc(all, func(a, b T) int {
		x, y := identity(a), identity(b)
		switch {
		case x.Name != y.Name:
			return strings.Compare(x.Name, y.Name)
		case x.Older(y):
			return -1
		case y.Older(x):
			return 1
		}
		return 0
	})
	var kept []T
	for _, one := range all {
		if n := len(kept); n > 0 && identity(kept[n-1]).Name == identity(one).Name {
			u.Problems = append(u.Problems, duplicate(kind, identity(one), identity(kept[n-1])))
			continue
		}
		kept = append(kept, one)
	}
	return kept
}

func duplicate(kind mesh.Kind, loser, winner mesh.Identity) mesh.Problem {
	remedy := "rename or remove one of the two"
	if kind == mesh.KindMesh {
		remedy = "keep one document of kind " + kindMesh
	}
	return mesh.Problem{
		Subject: mesh.Subject{Kind: kind, Name: loser.Name, Source: loser.Source},
		Field:   "metadata.name",
		Reason:  mesh.DuplicateName,
		Detail:  fmt.Sprintf("is in %s too, which goes before, so the %s in %s is left out", winner.Source, kind, loser.Source),
		Remedy:  remedy,
	}
}

// withStatus gives each node the status of its file, which goes before one in a manifest. A
// node may be known by its status alone, and is then undeclared. A file that cannot be read hurts that node alone: no
// node can make the others' absence doubtful.
func withStatus(u *mesh.Update, nodes []mesh.Node, statuses []content) []mesh.Node {
	said := make(map[string]mesh.Node)
	for _, c := range statuses {
		u.Problems = append(u.Problems, c.problems...)
		for _, n := range c.nodes {
			said[n.Name] = n
		}
	}
	var out []mesh.Node
	for _, n := range nodes {
		if own, spoke := said[n.Name]; spoke {
			n.Status = own.Status
			delete(said, n.Name)
		}
		out = append(out, n)
	}
	for _, n := range said {
		n.Undeclared = true
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b mesh.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}
