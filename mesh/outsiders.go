package mesh

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

// PeerStatus is what is known of an outside peer that this node has a tunnel with.
type PeerStatus struct {
	Name          string
	Key           device.PublicKey
	Alive         bool           // it has a session: its last handshake is less than three minutes old
	LastHandshake time.Time      // zero: none since the agent started
	Endpoint      netip.AddrPort // where its packets come from; invalid: none came
}

// outsiders are the outside peers, which answer no probe: they are alive as long as they have a
// session.
type outsiders map[device.PublicKey]*PeerStatus

// follow keeps what is known of those that stay.
func (o outsiders) follow(plan Plan) outsiders {
	tested := make(map[device.PublicKey]bool, len(plan.Probes))
	for _, p := range plan.Probes {
		tested[p.Key] = true
	}
	next := make(outsiders)
	for _, p := range plan.Device.Peers {
		if tested[p.PublicKey] {
			continue
		}
		next[p.PublicKey] = &PeerStatus{Name: p.Name, Key: p.PublicKey}
		if known := o[p.PublicKey]; known != nil {
			*next[p.PublicKey] = *known
			next[p.PublicKey].Name = p.Name
		}
	}
	return next
}

// notice takes in what the device knows of a peer, and reports whether it came alive or fell silent.
func (o outsiders) notice(now device.PeerState, at time.Time) bool {
	p := o[now.PublicKey]
	if p == nil {
		return false
	}
	p.LastHandshake, p.Endpoint = now.LastHandshake, now.Endpoint
	alive := !now.LastHandshake.IsZero() && at.Sub(now.LastHandshake) < sessionLife
	changed := alive != p.Alive
	p.Alive = alive
	return changed
}

func (o outsiders) list() (list []PeerStatus) {
	for _, p := range o {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b PeerStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// peers are the outside peers, by name.
func (p *prober) peers() []PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outside.list()
}
