package device

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"
	wg "golang.zx2c4.com/wireguard/device"
)

// model is what we made the device to be. The device is ours alone, so remembering is as
// good as reading, and costs nothing at 10,000 peers. It is guarded by Device.lock.
type model struct {
	privateKey PrivateKey
	publicKey  PublicKey // of privateKey
	listenPort uint16
	fwMark     uint32
	peers      map[PublicKey]*peer
	byWG       map[*wg.Peer]*peer
	routes     *routes
	greet      []*peer             // to be sent a first handshake, paced
	announce   []*peer             // to be told of the port, paced
	announceAt time.Time           // not the next of them before this
	hurry      map[*peer]time.Time // when the next address gets its turn
	anew       map[*peer]time.Time // when a handshake with a new address is begun
	doubts     map[*peer]doubt     // sessions that may not stand
	vigil      vigil
}

// peer is one peer of the model. key and wg never change. All but these and shown is guarded by
// Device.lock.
type peer struct {
	key       PublicKey
	wg        *wg.Peer
	name      string
	psk       PresharedKey
	keepalive time.Duration
	allowed   []netip.Prefix // sorted
	path      path
	crossings crossings
	watch     watch
	shown     atomic.Pointer[shown] // what errors tell, for who does not hold the lock
}

// shown is what people are told of a peer that cannot be reached.
type shown struct {
	name     string
	endpoint netip.AddrPort // invalid: none is known
	problem  string         // of the endpoint's name
}

func (p *peer) show() { p.shown.Store(&shown{p.name, p.path.applied, p.path.problem}) }

// declare notes what the operator wrote and what was written for it.
func (p *peer) declare(e Endpoint, written netip.AddrPort) {
	p.path.declare(e, written)
	p.watch.declare(time.Now())
	p.show()
}

// routes finds the peer of an address, for readers who do not hold Device.lock.
type routes struct {
	mu    sync.RWMutex
	table bart.Table[*peer]
}

func newModel() model {
	return model{
		peers:  make(map[PublicKey]*peer),
		byWG:   make(map[*wg.Peer]*peer),
		hurry:  make(map[*peer]time.Time),
		anew:   make(map[*peer]time.Time),
		doubts: make(map[*peer]doubt),
		vigil:  vigil{confirm: make(map[*peer]confirmation)},
		routes: &routes{},
	}
}

// apply folds one operation in. Paths are the supervisor's.
func (m *model) apply(op Op) {
	p := m.peers[op.Peer]
	switch op.Kind {
	case OpSetPrivateKey:
		m.privateKey, m.publicKey = op.PrivateKey, op.PrivateKey.Public()
	case OpSetListenPort:
		m.listenPort = op.ListenPort
	case OpSetFwMark:
		m.fwMark = op.FwMark
	case OpAddPeer:
		m.peers[op.Peer] = &peer{key: op.Peer, name: op.Name, psk: op.PresharedKey, keepalive: op.Keepalive}
	case OpSetPresharedKey:
		p.psk = op.PresharedKey
	case OpSetKeepalive:
		p.keepalive = op.Keepalive
	case OpAddAllowedIP:
		if from := m.peers[op.From]; from != nil {
			from.drop(op.Prefix)
		}
		p.add(op.Prefix)
		m.routes.set(op.Prefix, p)
	case OpRemoveAllowedIP:
		p.drop(op.Prefix)
		m.routes.unset(op.Prefix)
	case OpRemovePeer:
		for _, prefix := range p.allowed {
			m.routes.unset(prefix)
		}
		delete(m.peers, op.Peer)
		delete(m.byWG, p.wg)
		delete(m.hurry, p)
		delete(m.anew, p)
		delete(m.doubts, p)
	}
}

func (p *peer) add(prefix netip.Prefix) {
	if i, found := slices.BinarySearchFunc(p.allowed, prefix, comparePrefix); !found {
		p.allowed = slices.Insert(p.allowed, i, prefix)
	}
}

func (p *peer) drop(prefix netip.Prefix) {
	if i, found := slices.BinarySearchFunc(p.allowed, prefix, comparePrefix); found {
		p.allowed = slices.Delete(p.allowed, i, i+1)
	}
}

// state returns the configuration part of what the device is.
func (m *model) state() State {
	s := m.deviceState()
	s.Peers = make([]PeerState, 0, len(m.peers))
	for _, p := range m.peers {
		s.Peers = append(s.Peers, p.state())
	}
	slices.SortFunc(s.Peers, func(a, b PeerState) int { return a.PublicKey.Compare(b.PublicKey) })
	return s
}

// stateOf is state for the given peers alone, and for those that have prefixes they claim.
func (m *model) stateOf(peers []PeerConfig) State {
	s := m.deviceState()
	for _, c := range peers {
		if p := m.peers[c.PublicKey]; p != nil {
			s.Peers = append(s.Peers, p.state())
		}
	}
	return s
}

func (m *model) deviceState() State {
	return State{PublicKey: m.publicKey, ListenPort: m.listenPort, FwMark: m.fwMark}
}

func (p *peer) state() PeerState {
	return PeerState{
		PublicKey:           p.key,
		Name:                p.name,
		PresharedKey:        p.psk,
		Declared:            p.path.declared,
		Applied:             p.path.applied,
		EndpointProblem:     p.path.problem,
		PersistentKeepalive: p.keepalive,
		AllowedIPs:          slices.Clone(p.allowed),
	}
}

// config is the Config that would leave the device as it is.
func (m *model) config() Config {
	c := Config{PrivateKey: m.privateKey, ListenPort: m.listenPort, FwMark: m.fwMark}
	for _, p := range m.peers {
		c.Peers = append(c.Peers, PeerConfig{
			PublicKey: p.key, Name: p.name, PresharedKey: p.psk, Endpoint: p.path.declared,
			PersistentKeepalive: p.keepalive, AllowedIPs: slices.Clone(p.allowed),
		})
	}
	slices.SortFunc(c.Peers, func(a, b PeerConfig) int { return a.PublicKey.Compare(b.PublicKey) })
	return c
}

// rename takes over names, which are shown but never compared.
func (m *model) rename(peers []PeerConfig) {
	for i := range peers {
		if p := m.peers[peers[i].PublicKey]; p != nil && p.name != peers[i].Name {
			p.name = peers[i].Name
			p.show()
		}
	}
}

// conflicts names the first prefix that a peer outside of the given ones has already.
func (m *model) conflicts(peers []PeerConfig) error {
	given := make(map[PublicKey]bool, len(peers))
	for _, c := range peers {
		given[c.PublicKey] = true
	}
	for i := range peers {
		for _, prefix := range peers[i].AllowedIPs {
			owner := m.routes.get(prefix)
			if owner == nil || given[owner.key] {
				continue
			}
			other := PeerConfig{PublicKey: owner.key, Name: owner.name}
			return peers[i].problem("AllowedIPs", prefix.String(), fmt.Sprintf("belongs to peer %s: give that peer too, without it", other.label()))
		}
	}
	return nil
}

func (m *model) countNew(peers []PeerConfig) (n int) {
	for _, c := range peers {
		if m.peers[c.PublicKey] == nil {
			n++
		}
	}
	return n
}

func (r *routes) set(prefix netip.Prefix, p *peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.Insert(prefix, p)
}

func (r *routes) unset(prefix netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.Delete(prefix)
}

func (r *routes) get(prefix netip.Prefix) *peer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, _ := r.table.Get(prefix)
	return p
}

func (r *routes) lookup(addr netip.Addr) *peer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, _ := r.table.Lookup(addr)
	return p
}
