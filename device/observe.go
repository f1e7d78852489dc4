package device

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// observe reads the device back and adds what only we know. The lock is held.
func (d *Device) observe() (State, error) {
	text, err := d.wg.IpcGet()
	if err != nil {
		return State{}, fmt.Errorf("read device %s: %w", d.Name(), err)
	}
	s, err := parseUAPIGet(text)
	if err != nil {
		return State{}, fmt.Errorf("read device %s: %w", d.Name(), err)
	}
	for i := range s.Peers {
		seen := &s.Peers[i]
		if p := d.model.peers[seen.PublicKey]; p != nil {
			seen.Name, seen.Declared, seen.Applied = p.name, p.path.declared, p.path.applied
			seen.EndpointProblem, seen.HandshakeProblem = p.path.problem, p.watch.trouble
			seen.Handshakes = d.tracker.get(p.wg).count
		}
	}
	return s, nil
}

// parseUAPIGet reads the answer to a UAPI "get" into a State: sorted, without the private
// key. See https://www.wireguard.com/xplatform/. Its errors hold no value, which may be a key.
func parseUAPIGet(text string) (State, error) {
	var s State
	var p *PeerState
	n := 0
	for line := range strings.Lines(text) {
		n++
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok {
			if key == "" {
				continue
			}
			return State{}, fmt.Errorf("UAPI line %d: no key=value", n)
		}
		var err error
		switch {
		case key == "public_key":
			s.Peers = append(s.Peers, PeerState{})
			p = &s.Peers[len(s.Peers)-1]
			p.PublicKey, err = keyFromHex(value)
		case p == nil:
			err = s.set(key, value)
		default:
			err = p.set(key, value)
		}
		if err != nil {
			return State{}, fmt.Errorf("UAPI line %d: %s: %w", n, key, err)
		}
	}
	for i := range s.Peers {
		s.Peers[i].AllowedIPs = maskedAndSorted(s.Peers[i].AllowedIPs)
	}
	slices.SortFunc(s.Peers, func(a, b PeerState) int { return a.PublicKey.Compare(b.PublicKey) })
	return s, nil
}

func (s *State) set(key, value string) error {
	switch key {
	case "private_key":
		k, err := keyFromHex(value)
		s.PublicKey = newPrivateKey(k).Public()
		return err
	case "listen_port":
		n, err := number(value, 16)
		s.ListenPort = uint16(n)
		return err
	case "fwmark":
		n, err := number(value, 32)
		s.FwMark = uint32(n)
		return err
	}
	return nil // a later version of the protocol tells more
}

func (p *PeerState) set(key, value string) error {
	switch key {
	case "preshared_key":
		k, err := keyFromHex(value)
		if err == nil && !k.IsZero() {
			p.PresharedKey = PresharedKey{newSecret(k)}
		}
		return err
	case "endpoint":
		a, err := netip.ParseAddrPort(value)
		if err != nil {
			return errNotAddress
		}
		p.Endpoint = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	case "last_handshake_time_sec":
		n, err := number(value, 62)
		p.LastHandshake = addTime(p.LastHandshake, time.Unix(int64(n), 0), n)
		return err
	case "last_handshake_time_nsec":
		n, err := number(value, 30)
		p.LastHandshake = addTime(p.LastHandshake, p.LastHandshake.Add(time.Duration(n)), n)
		return err
	case "tx_bytes":
		n, err := number(value, 64)
		p.TransmitBytes = n
		return err
	case "rx_bytes":
		n, err := number(value, 64)
		p.ReceiveBytes = n
		return err
	case "persistent_keepalive_interval":
		n, err := number(value, 16)
		p.PersistentKeepalive = time.Duration(n) * time.Second
		return err
	case "allowed_ip":
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return errNotPrefix
		}
		p.AllowedIPs = append(p.AllowedIPs, prefix)
	}
	return nil
}

// addTime keeps a time of never, which UAPI writes as two zeros.
func addTime(have, want time.Time, n uint64) time.Time {
	if n == 0 {
		return have
	}
	return want
}

type uapiError string

func (e uapiError) Error() string { return string(e) }

const (
	errNotAddress = uapiError("not an address and port")
	errNotPrefix  = uapiError("not a prefix")
	errNotNumber  = uapiError("not a number in range")
	errNotKey     = uapiError("not a key of 64 hex digits")
)

func number(value string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, bits)
	if err != nil {
		return 0, errNotNumber
	}
	return n, nil
}

func keyFromHex(value string) (k PublicKey, err error) {
	if b, err := hex.DecodeString(value); err == nil && len(b) == KeyLen {
		return PublicKey(b), nil
	}
	return k, errNotKey
}
