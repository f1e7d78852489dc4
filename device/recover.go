package device

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// recover follows a refused operation. IpcSet is no transaction: what stood before the bad
// line is done. So the device is read back, and the model becomes what it sees. Settings of
// the device itself go back to what they were, since a port that cannot be opened leaves
// the device deaf.
func (d *Device) recover(ops []Op, cause error) ([]Change, error) {
	cause = describe(ops, cause)
	if err := d.restoreDevice(ops); err != nil {
		cause = errors.Join(cause, err)
	}
	seen, err := d.observe()
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	done := slices.DeleteFunc(slices.Clone(ops), func(op Op) bool { return !stands(op, seen) })
	d.fold(done, d.addresses(done))
	d.adopt(seen)
	return Changes(done), cause
}

func describe(ops []Op, cause error) error {
	for _, op := range ops {
		switch op.Kind {
		case OpSetListenPort:
			return fmt.Errorf("set listen port %d, or another change with it: %w", op.ListenPort, cause)
		case OpSetFwMark:
			return fmt.Errorf("set fwmark 0x%x, or another change with it: %w", op.FwMark, cause)
		}
	}
	return fmt.Errorf("change the device: %w", cause)
}

func (d *Device) restoreDevice(ops []Op) error {
	var text []byte
	for _, op := range ops {
		switch op.Kind {
		case OpSetListenPort:
			text = Op{Kind: op.Kind, ListenPort: d.model.listenPort}.appendUAPI(text, nil)
		case OpSetFwMark:
			text = Op{Kind: op.Kind, FwMark: d.model.fwMark}.appendUAPI(text, nil)
		}
	}
	if len(text) == 0 {
		return nil
	}
	if err := d.ipcSet(string(text)); err != nil {
		return fmt.Errorf("go back to the settings before: %w", err)
	}
	d.announce()
	return nil
}

// stands reports whether an operation's effect can be seen.
func stands(op Op, seen State) bool {
	i, found := slices.BinarySearchFunc(seen.Peers, op.Peer, func(p PeerState, k PublicKey) int { return p.PublicKey.Compare(k) })
	var p PeerState
	if found {
		p = seen.Peers[i]
	}
	has := slices.Contains(p.AllowedIPs, op.Prefix)
	switch op.Kind {
	case OpSetPrivateKey:
		return seen.PublicKey == op.PrivateKey.Public()
	case OpSetListenPort:
		return seen.ListenPort == op.ListenPort
	case OpSetFwMark:
		return seen.FwMark == op.FwMark
	case OpAddPeer, OpSetEndpoint:
		return found
	case OpSetPresharedKey:
		return found && p.PresharedKey.Equal(op.PresharedKey)
	case OpSetKeepalive:
		return found && p.PersistentKeepalive == op.Keepalive
	case OpAddAllowedIP:
		return has
	case OpRemoveAllowedIP:
		return !has
	case OpRemovePeer:
		return !found
	}
	return false
}

// adopt corrects the model where a peer was left half-made, so that the next Diff finds it.
func (d *Device) adopt(seen State) {
	d.model.listenPort, d.model.fwMark = seen.ListenPort, seen.FwMark
	for _, s := range seen.Peers {
		p := d.model.peers[s.PublicKey]
		if p == nil {
			continue
		}
		p.psk, p.keepalive = s.PresharedKey, s.PersistentKeepalive
		if p.path.applied.IsValid() && !s.Endpoint.IsValid() {
			d.names.release(p.path.declared)
			p.declare(Endpoint{}, netip.AddrPort{})
		}
	}
}

// addresses decides what AddPeer and SetEndpoint write. A new peer that was known before a
// restart, under the same declaration, is where it was last heard. A name whose answer has
// not come writes nothing: the supervisor will.
func (d *Device) addresses(ops []Op) map[PublicKey]netip.AddrPort {
	out := make(map[PublicKey]netip.AddrPort)
	for _, op := range ops {
		if op.Kind != OpAddPeer && op.Kind != OpSetEndpoint {
			continue
		}
		if live := d.remembered(op); live.IsValid() {
			out[op.Peer] = live
		} else if known := d.names.addresses(op.Endpoint); len(known) > 0 {
			out[op.Peer] = known[0]
		}
	}
	return out
}

// remembered returns where a new peer was last heard, if the bind can still send there: the
// interface that is the zone of an address may be gone.
func (d *Device) remembered(op Op) netip.AddrPort {
	saved, found := d.saved[op.Peer]
	if op.Kind != OpAddPeer || !found || saved.Declared != op.Endpoint {
		return netip.AddrPort{}
	}
	if _, err := d.bind.ParseEndpoint(saved.Live.String()); err != nil {
		d.log.Warn().Err(err).Str("peer", op.Peer.Short()).Str("live", saved.Live.String()).Msg("saved endpoint cannot be used, the declared one is taken")
		return netip.AddrPort{}
	}
	return saved.Live
}
