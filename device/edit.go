package device

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// editConfig returns c as a UAPI "set" request would have it. Words such as replace_peers
// describe the wanted end here: what is done to get there is Diff's affair. As in wg(8), a
// prefix given to one peer is taken from another. Errors tell neither values nor unknown
// words, which may be secrets.
//
// A port of zero asks for one that the system chooses, and stays zero. Not so beside a private
// key: wg setconf and wg syncconf say zero where a file says nothing, and there as in Config
// the port stays.
func editConfig(c Config, lines []string) (Config, error) {
	e := newEditor(c)
	for i, line := range lines {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return Config{}, fmt.Errorf("UAPI set, line %d: no key=value", i+1)
		}
		switch err := e.line(key, value); err {
		case nil:
		case errUnknown: // and what is unknown may be a secret
			return Config{}, fmt.Errorf("UAPI set, line %d: %w", i+1, err)
		default:
			return Config{}, fmt.Errorf("UAPI set, line %d, %s: %w", i+1, key, err)
		}
	}
	if e.whole && e.config.ListenPort == 0 {
		e.config.ListenPort = c.ListenPort
	}
	e.finish()
	return e.config, nil
}

// editor has a request's lines make a Config. Requests of wg setconf may have as many peers as
// a device can hold, and the device waits: each line costs the same, however many there are.
type editor struct {
	config Config
	index  map[PublicKey]int    // of peers that are there; others in config are left behind
	owner  map[netip.Prefix]int // the peer that has it; where others list it they lost it

	peer   int  // index of the current peer
	inPeer bool // after the first public_key
	fresh  bool // the current peer was created by this request
	whole  bool // the request has a private key, as those of wg setconf and syncconf do
	gone   bool // the current peer was removed or is not to be created
}

func newEditor(c Config) *editor {
	e := &editor{config: c, index: make(map[PublicKey]int, len(c.Peers)), owner: make(map[netip.Prefix]int, len(c.Peers))}
	for i, p := range c.Peers {
		e.index[p.PublicKey] = i
		for _, prefix := range p.AllowedIPs {
			e.owner[prefix] = i
		}
	}
	return e
}

// finish drops what was left behind.
func (e *editor) finish() {
	kept := e.config.Peers[:0]
	for i, p := range e.config.Peers {
		if j, there := e.index[p.PublicKey]; there && j == i {
			p.AllowedIPs = slices.DeleteFunc(p.AllowedIPs, func(prefix netip.Prefix) bool { return !e.owns(i, prefix) })
			kept = append(kept, p)
		}
	}
	e.config.Peers = kept
}

func (e *editor) owns(peer int, prefix netip.Prefix) bool {
	owner, owned := e.owner[prefix]
	return owned && owner == peer
}

const (
	// In Config a key of zero means the one that is there, for wg(8) it means none.
	errNoKey   = uapiError("a device that has a key is not left without: nobody could reach it, close it instead")
	errNotTrue = uapiError("its only value is true")
	errUnknown = uapiError("not a key of the protocol")
	errVersion = uapiError("only protocol version 1 is known")
)

func (e *editor) line(key, value string) error {
	if key == "public_key" {
		return e.selectPeer(value)
	}
	if !e.inPeer {
		return e.device(key, value)
	}
	if e.gone {
		return nil
	}
	return e.peerLine(&e.config.Peers[e.peer], key, value)
}

func (e *editor) device(key, value string) error {
	switch key {
	case "private_key":
		e.whole = true
		k, err := keyFromHex(value)
		if err == nil && k.IsZero() && !e.config.PrivateKey.IsZero() {
			return errNoKey
		}
		e.config.PrivateKey = newPrivateKey(k)
		return err
	case "listen_port":
		n, err := number(value, 16)
		e.config.ListenPort = uint16(n)
		return err
	case "fwmark":
		n, err := number(value, 32)
		e.config.FwMark = uint32(n)
		return err
	case "replace_peers":
		e.config.Peers = nil
		clear(e.index)
		clear(e.owner)
		return isTrue(value)
	}
	return errUnknown
}

func (e *editor) selectPeer(value string) error {
	k, err := keyFromHex(value)
	if err != nil {
		return err
	}
	i, there := e.index[k]
	if !there {
		i = len(e.config.Peers)
		e.config.Peers = append(e.config.Peers, PeerConfig{PublicKey: k})
		e.index[k] = i
	}
	e.peer, e.inPeer, e.gone, e.fresh = i, true, false, !there
	return nil
}

func (e *editor) peerLine(p *PeerConfig, key, value string) error {
	switch key {
	case "update_only":
		if e.fresh {
			e.drop()
		}
		return isTrue(value)
	case "remove":
		e.drop()
		return isTrue(value)
	case "preshared_key":
		k, err := keyFromHex(value)
		p.PresharedKey = PresharedKey{newSecret(k)}
		return err
	case "endpoint":
		a, err := netip.ParseAddrPort(value)
		if err != nil {
			return errNotAddress
		}
		p.Endpoint = EndpointFrom(a)
	case "persistent_keepalive_interval":
		n, err := number(value, 16)
		p.PersistentKeepalive = time.Duration(n) * time.Second
		return err
	case "replace_allowed_ips":
		e.disown(p)
		return isTrue(value)
	case "allowed_ip":
		return e.allowedIP(p, value)
	case "protocol_version":
		if value != "1" {
			return errVersion
		}
	default:
		return errUnknown
	}
	return nil
}

func (e *editor) drop() {
	p := &e.config.Peers[e.peer]
	e.disown(p)
	delete(e.index, p.PublicKey)
	e.gone = true
}

// disown takes all prefixes from the current peer.
func (e *editor) disown(p *PeerConfig) {
	for _, prefix := range p.AllowedIPs {
		if e.owns(e.peer, prefix) {
			delete(e.owner, prefix)
		}
	}
	p.AllowedIPs = nil
}

func (e *editor) allowedIP(p *PeerConfig, value string) error {
	value, removal := strings.CutPrefix(value, "-")
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return errNotPrefix
	}
	prefix = maskedAndSorted([]netip.Prefix{prefix})[0]
	switch owns := e.owns(e.peer, prefix); {
	case owns && removal:
		delete(e.owner, prefix)
	case !owns && !removal:
		e.owner[prefix] = e.peer
		p.AllowedIPs = append(p.AllowedIPs, prefix)
	}
	return nil
}

func isTrue(value string) error {
	if value != "true" {
		return errNotTrue
	}
	return nil
}
