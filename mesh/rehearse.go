package mesh

import (
	"crypto/sha256"
	"slices"

	"github.com/stillwire/stillwire/device"
)

// Rehearse returns the facts as they would be once every node had an agent: nodes without a key
// get a stand-in, and all claim what their plans say that they should. It names the nodes whose
// key is a stand-in. It is for a look at a mesh that does not run yet, and works for a second or
// more where there are thousands of nodes.
func Rehearse(s Snapshot) (rehearsed Snapshot, standIns []string) {
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Status.PublicKey.IsZero() {
			n.Status.PublicKey = device.PublicKey(sha256.Sum256([]byte("stand-in for " + n.Name)))
			standIns = append(standIns, n.Name)
		}
	}
	for range settleRounds {
		if !claimAll(&s, standIns) {
			break
		}
	}
	return s, standIns
}

// claimAll lets the named nodes claim, one after the other, and reports whether any did.
func claimAll(s *Snapshot, names []string) (changed bool) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !slices.Contains(names, n.Name) {
			continue
		}
		plan, _ := MakePlan(*s, n.Name, Options{})
		c := plan.Publish
		if plan.Self == "" || slices.Equal(c.MeshAddresses, n.Status.MeshAddresses) && c.Leads == n.Status.Leads {
			continue
		}
		n.Status.MeshAddresses, n.Status.Leads = c.MeshAddresses, c.Leads
		changed = true
	}
	return changed
}
