package gateway

import (
	"maps"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// given adds the tunnels that run already, such as a node of a mesh. Whoever opened them changes
// and closes them; a gateway only serves on them.
func (l *loader) given() {
	for _, name := range slices.Sorted(maps.Keys(l.Given)) {
		l.spec.Tunnels = append(l.spec.Tunnels, Tunnel{
			Name: name, Net: l.Given[name], Source: "the node",
			File: &device.File{Path: name}, // says nothing
		})
	}
}

// isGiven reports whether the tunnel is another's to change and close.
func (t *Tunnel) isGiven() bool { return t.Net != nil }
