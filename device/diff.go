package device

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// Diff returns the operations that make a device that was seen as have equal want, and none
// where they are equal. want must come from Config.Normalized. Diff is pure.
//
// The order loses nothing. Settings of the device come first, and of these what a system may
// refuse before the private key, which ends every session. New peers come next, then prefixes
// are added or moved, the longest first, then taken away, the shortest first, and peers that
// go are removed last. So an address that both states route is routed at every moment
// between: by its old owner until its new owner has it. A peer that does not differ is in no
// operation.
//
// Where new and old peers together are more than MaxPeers, as many of the old ones as need be
// are removed before the new ones are added: those first whose prefixes nobody takes over.
//
// An endpoint differs only when its declaration does, never because the peer roamed.
func Diff(have State, want Config) []Op { return diff(have, want, MaxPeers) }

func diff(have State, want Config, maxPeers int) []Op {
	d := differ{
		have:  make(map[PublicKey]*PeerState, len(have.Peers)),
		owner: make(map[netip.Prefix]PublicKey),
	}
	for i := range have.Peers {
		p := &have.Peers[i]
		d.have[p.PublicKey] = p
		for _, prefix := range p.AllowedIPs {
			d.owner[prefix] = p.PublicKey
		}
	}
	d.device(have, want)
	stays := make(map[PublicKey]bool, len(want.Peers))
	for i := range want.Peers {
		stays[want.Peers[i].PublicKey] = true
		d.peer(&want.Peers[i])
	}
	for i := range have.Peers {
		if p := &have.Peers[i]; !stays[p.PublicKey] {
			d.removePeers = append(d.removePeers, Op{Kind: OpRemovePeer, Peer: p.PublicKey, Name: p.Name, old: p.text()})
		}
	}
	return d.ordered(maxPeers)
}

// differ collects operations by the phase in which they must happen.
type differ struct {
	have  map[PublicKey]*PeerState
	owner map[netip.Prefix]PublicKey

	settings, peers, adds, takes, removePeers []Op

	added int // new peers
}

func (d *differ) device(have State, want Config) {
	if p := want.ListenPort; p != 0 && p != have.ListenPort {
		d.settings = append(d.settings, Op{Kind: OpSetListenPort, ListenPort: p, old: strconv.Itoa(int(have.ListenPort))})
	}
	if want.FwMark != have.FwMark {
		d.settings = append(d.settings, Op{Kind: OpSetFwMark, FwMark: want.FwMark, old: markText(have.FwMark)})
	}
	if k := want.PrivateKey; !k.IsZero() && k.Public() != have.PublicKey {
		old := ""
		if !have.PublicKey.IsZero() {
			old = redacted
		}
		d.settings = append(d.settings, Op{Kind: OpSetPrivateKey, PrivateKey: k, old: old})
	}
}

func (d *differ) peer(want *PeerConfig) {
	have := d.have[want.PublicKey]
	base := Op{Peer: want.PublicKey, Name: want.Name, Source: want.Source}
	if have == nil {
		op := base
		op.Kind = OpAddPeer
		op.PresharedKey, op.Endpoint, op.Keepalive = want.PresharedKey, want.Endpoint, want.PersistentKeepalive
		d.peers = append(d.peers, op)
		d.added++
		d.prefixes(base, nil, want.AllowedIPs)
		return
	}
	if !have.PresharedKey.Equal(want.PresharedKey) {
		op := base
		op.Kind, op.PresharedKey, op.old = OpSetPresharedKey, want.PresharedKey, have.PresharedKey.String()
		d.peers = append(d.peers, op)
	}
	if have.Declared != want.Endpoint {
		op := base
		op.Kind, op.Endpoint, op.old = OpSetEndpoint, want.Endpoint, have.Declared.String()
		d.peers = append(d.peers, op)
	}
	if have.PersistentKeepalive != want.PersistentKeepalive {
		op := base
		op.Kind, op.Keepalive, op.old = OpSetKeepalive, want.PersistentKeepalive, keepaliveText(have.PersistentKeepalive)
		d.peers = append(d.peers, op)
	}
	d.prefixes(base, have.AllowedIPs, want.AllowedIPs)
}

// prefixes walks two sorted lists. A prefix that another peer has is moved by the insert
// alone, so its old owner gets no operation for it.
func (d *differ) prefixes(base Op, have, want []netip.Prefix) {
	for _, prefix := range want {
		if _, found := slices.BinarySearchFunc(have, prefix, comparePrefix); found {
			continue
		}
		add := base
		add.Kind, add.Prefix = OpAddAllowedIP, prefix
		if from, owned := d.owner[prefix]; owned {
			add.From, add.old = from, prefix.String()+" of peer "+from.Short()
		}
		d.adds = append(d.adds, add)
	}
	for _, prefix := range have {
		if _, found := slices.BinarySearchFunc(want, prefix, comparePrefix); !found {
			take := base
			take.Kind, take.Prefix = OpRemoveAllowedIP, prefix
			d.takes = append(d.takes, take)
		}
	}
}

func (d *differ) ordered(maxPeers int) []Op {
	moved := make(map[netip.Prefix]bool)
	for _, op := range d.adds {
		if !op.From.IsZero() {
			moved[op.Prefix] = true
		}
	}
	takes := slices.DeleteFunc(d.takes, func(op Op) bool { return moved[op.Prefix] })
	slices.SortStableFunc(d.adds, func(a, b Op) int { return -cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	slices.SortStableFunc(takes, func(a, b Op) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	first, last := d.makeRoom(len(d.have)+d.added-maxPeers, moved)
	return slices.Concat(d.settings, first, d.peers, d.adds, takes, last)
}

// makeRoom parts the removals into as many as must come first and the others.
func (d *differ) makeRoom(n int, moved map[netip.Prefix]bool) (first, last []Op) {
	if n <= 0 {
		return nil, d.removePeers
	}
	var bequeathing []Op
	for _, op := range d.removePeers {
		if slices.ContainsFunc(d.have[op.Peer].AllowedIPs, func(p netip.Prefix) bool { return moved[p] }) {
			bequeathing = append(bequeathing, op)
		} else {
			first = append(first, op)
		}
	}
	all := append(first, bequeathing...)
	n = min(n, len(all))
	return all[:n], all[n:]
}

func (p *PeerState) text() string {
	return peerText(p.Declared, p.PersistentKeepalive, !p.PresharedKey.IsZero(), p.AllowedIPs)
}
