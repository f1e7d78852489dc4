package mesh

import (
	"slices"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

// DefaultPort is where a device listens when nothing else is said.
const DefaultPort = 51820

// DefaultKeepalive is how often a node behind a NAT speaks, when nothing else is said: NATs
// forget a UDP mapping after 30 s and more (RFC 4787).
const DefaultKeepalive = 25 * time.Second

// Options are what one node alone decides.
type Options struct {
	// Keepalive is the PersistentKeepalive of a node that is behind a NAT and has none in its
	// spec, whole seconds. 0: DefaultKeepalive; negative: none.
	Keepalive time.Duration
}

// MakePlan decides what the node self shall be, and names what of the facts it does not obey.
// It is pure, and laws hold for it that the tests state: the order of the facts does not matter;
// from the same facts A peers with B exactly if B peers with A, no address has two owners, and
// each route into the tunnel is covered by an allowed IP of a peer.
//
// When self is not a member, the plan is zero and a problem of reason NoMember says why: nothing
// must then be taken away from what there is.
func MakePlan(s Snapshot, self string, o Options) (Plan, []Problem) {
	m := newMesh(s)
	me := m.byName[self]
	if me == nil {
		m.report(Problem{
			Subject: Subject{Kind: KindNode, Name: self},
			Reason:  NoMember,
			Detail:  "this node is not a member of the mesh, what it has is kept as it is",
			Remedy:  "see its other problems, or add it to a source",
		})
		return Plan{}, m.sortedProblems()
	}
	v := view{mesh: m, self: me, options: o}
	v.claimed = v.claims()
	plan := Plan{
		Self:     self,
		Location: me.segment.name,
		Leaders:  m.leadership(),
		Device:   v.device(),
		Publish:  v.claimed,
		Probes:   v.probes(),
	}
	plan.Host = v.host(plan.Device)
	return plan, m.sortedProblems()
}

// mesh is the facts once all that is wrong with them is left out. It is the same on every node.
type mesh struct {
	Snapshot
	members  []*member // nodes, by name
	outside  []*outside
	byName   map[string]*member
	segments []*segment // by name
	owned    ownership
	learned  map[device.PublicKey][]device.Endpoint // where others see a node's packets come from
	problems []Problem
}

// newMesh takes the steps in the order in which one needs what the one before found.
func newMesh(s Snapshot) *mesh {
	m := &mesh{Snapshot: s, byName: make(map[string]*member)}
	m.Nodes, m.Peers = slices.Clone(s.Nodes), slices.Clone(s.Peers)
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.compare(b.Identity) })
	slices.SortFunc(m.Peers, func(a, b Peer) int { return a.compare(b.Identity) })
	m.checkSettings()
	m.enroll()
	m.shareOut()
	m.learned = m.witness()
	m.divide()
	m.elect()
	return m
}

func (m *mesh) report(p Problem) { m.problems = append(m.problems, p) }

// sortedProblems are each said once.
func (m *mesh) sortedProblems() []Problem {
	slices.SortFunc(m.problems, Problem.compare)
	return slices.CompactFunc(m.problems, func(a, b Problem) bool { return a.ID() == b.ID() })
}

// member is a node that takes part, with what of its facts is obeyed.
type member struct {
	*Node
	segment  *segment
	key      device.PublicKey
	port     uint16
	prefixes prefixes
	declared device.Endpoint // of the spec
	wish     bool
}

// outside is a Peer that takes part.
type outside struct {
	*Peer
	endpoint device.Endpoint
	prefixes prefixes
}

func (n *Node) subject() Subject { return Subject{KindNode, n.Name, n.Source} }
func (p *Peer) subject() Subject { return Subject{KindPeer, p.Name, p.Source} }

// enroll takes in who has a name and a key that no older one has. Nodes go before peers, so that
// nobody can push a node out by adding a peer.
func (m *mesh) enroll() {
	keys := make(map[device.PublicKey]Subject)
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if m.admit(n.subject(), "status.publicKey", n.Status.PublicKey, keys, m.byName[n.Name] != nil) {
			mem := m.newMember(n)
			m.members = append(m.members, mem)
			m.byName[n.Name] = mem
		}
	}
	names := make(map[string]bool)
	for i := range m.Peers {
		p := &m.Peers[i]
		if m.admit(p.subject(), "spec.publicKey", p.PublicKey, keys, names[p.Name]) {
			m.outside = append(m.outside, m.newOutside(p))
			names[p.Name] = true
		}
	}
	slices.SortFunc(m.members, func(a, b *member) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.outside, func(a, b *outside) int { return strings.Compare(a.Name, b.Name) })
}

// admit reports whether one may take part, and notes its key.
func (m *mesh) admit(s Subject, field string, key device.PublicKey, keys map[device.PublicKey]Subject, nameTaken bool) bool {
	holder, taken := keys[key]
	switch {
	case nameTaken:
		m.report(Problem{s, "metadata.name", s.Name, DuplicateName, "an older " + string(s.Kind) + " has this name, this one is left out", "rename or remove one of the two"})
	case key.IsZero() && s.Kind == KindNode:
		m.report(Problem{s, field, "", NoKey, "is not known yet, the node is left out", "start the agent on the node, or see why its status is not written"})
	case key.IsZero():
		m.report(Problem{s, field, "", NoKey, "is missing, the peer is left out", "give the public key of the peer, as `wg pubkey` prints it"})
	case taken:
		m.report(Problem{s, field, key.Short(), DuplicateKey, "is the key of " + holder.String() + " too, this one is left out", "give it a key of its own, or remove one of the two"})
	default:
		keys[key] = s
		return true
	}
	return false
}
