package arch

import (
	"fmt"
	"slices"
	"strings"
)

// The rooms of the repository, as import paths below the module:
//
//	cmd  examples  test            nothing imports them
//	  |      |
//	  |------|--------> mesh/kube --+   the only one with client-go
//	  |      |          mesh/host --+   the only one with netlink and nftables
//	  |      |          mesh/file --+
//	  |      v                      v
//	  |--> netstack --> device <-- mesh
//	       the only one with gVisor

// arrows lists for each room which of the repository's packages it may import beside its
// own. The longest room that holds a file counts.
var arrows = map[string][]string{
	"device":         {},
	"netstack":       {"device"},
	"netstack/proxy": {},
	"mesh":           {"device"},
	"cmd":            {"device", "netstack", "mesh"},
	"examples":       {"device", "netstack", "mesh"},
	"test":           {"device", "netstack", "mesh", "cmd"},
}

// owners lists libraries that only some rooms may import. Tests below test/ may use all.
var owners = map[string][]string{
	"gvisor.dev":                      {"netstack"},
	"k8s.io":                          {"mesh/kube"},
	"sigs.k8s.io":                     {"mesh/kube"},
	"github.com/vishvananda/netlink":  {"mesh/host"},
	"github.com/jsimonetti/rtnetlink": {"mesh/host"},
	"github.com/mdlayher/netlink":     {"mesh/host"},
	"github.com/google/nftables":      {"mesh/host"},
	"github.com/ti-mo/conntrack":      {"mesh/host"},
}

func imports(f *File) (breaches []Breach) {
	for imported, line := range f.imports() {
		if reason := f.importBreach(imported); reason != "" {
			breaches = append(breaches, Breach{f.Path, line, reason})
		}
	}
	return breaches
}

func (f *File) importBreach(imported string) string {
	if imported == "os/exec" && !f.Test() {
		return "imports os/exec: the product starts no process, use netlink, /proc or Go"
	}
	if imported == "flag" && f.Library() {
		return "imports flag: a library takes Options, flags belong to cmd"
	}
	for prefix, rooms := range owners {
		if within(imported, prefix) && !f.In(rooms...) && !f.In("test") {
			return fmt.Sprintf("imports %s: only %s may", imported, strings.Join(rooms, " and "))
		}
	}
	if own, found := strings.CutPrefix(imported, module+"/"); found {
		return f.arrowBreach(own)
	}
	return ""
}

// arrowBreach judges the import of one of the repository's own packages.
func (f *File) arrowBreach(own string) string {
	if strings.HasSuffix(own, "test") && f.Library() && !strings.HasSuffix(f.Dir(), "test") {
		return fmt.Sprintf("imports %s: packages for tests stay out of the product", own)
	}
	if f.Dir() == "mesh" && within(own, "mesh") {
		return fmt.Sprintf("imports %s: what is below mesh imports mesh, never the reverse", own)
	}
	if strings.HasSuffix(f.Path, "_test.go") && within(own, "test") {
		return "" // the lab
	}
	room := longestRoom(f.Dir())
	allowed := append([]string{room}, arrows[room]...)
	if slices.ContainsFunc(allowed, func(dir string) bool { return within(own, dir) }) {
		return ""
	}
	return fmt.Sprintf("imports %s: %s may import of this repository only %s", own, room, strings.Join(allowed, ", "))
}

func longestRoom(dir string) (room string) {
	for r := range arrows {
		if within(dir, r) && len(r) > len(room) {
			room = r
		}
	}
	return room
}
