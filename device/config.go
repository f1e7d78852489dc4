package device

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// MaxPeers is how many peers one device can hold; wireguard-go refuses more.
const MaxPeers = 1 << 16

// Config is what a device shall be. It is a value: Apply copies what it keeps.
type Config struct {
	// PrivateKey of this device. None keeps the key the device has.
	PrivateKey PrivateKey
	// ListenPort is the UDP port. 0 keeps the port the device has, or at first lets the
	// system choose one.
	ListenPort uint16
	// FwMark is the SO_MARK of outgoing packets. 0 is none.
	FwMark uint32
	// Peers in any order. A peer of the device that is not listed is removed.
	Peers []PeerConfig
}

// PeerConfig is what one peer shall be.
type PeerConfig struct {
	PublicKey    PublicKey
	PresharedKey PresharedKey // none: no preshared key
	// Endpoint is where the peer is declared to be. None leaves it to the peer to speak first.
	Endpoint Endpoint
	// PersistentKeepalive is the interval of empty packets, in whole seconds from 1 s to
	// 65535 s. 0 is off. It never changes how the endpoint is treated.
	PersistentKeepalive time.Duration
	// AllowedIPs are the prefixes behind the peer, in any order, host bits ignored.
	AllowedIPs []netip.Prefix

	// Name is what people call the peer. It is shown in logs and changes, never compared.
	Name string
	// Source is the object that asks for this peer, such as "wg0.conf:12". It is shown as
	// the cause of changes, never compared.
	Source string
}

// Normalized returns a copy with peers sorted by key and AllowedIPs masked, sorted and
// without repetition, or the joined errors of everything in it that no device could obey.
// Each is a *ConfigError.
func (c Config) Normalized() (Config, error) {
	own := c.PrivateKey.Public()
	c.Peers = slices.Clone(c.Peers)
	slices.SortStableFunc(c.Peers, func(a, b PeerConfig) int { return a.PublicKey.Compare(b.PublicKey) })

	var errs []error
	if len(c.Peers) > MaxPeers {
		errs = append(errs, &ConfigError{Field: "Peers", Reason: fmt.Sprintf("%d peers are more than the %d a device can hold", len(c.Peers), MaxPeers)})
	}
	owner := make(map[netip.Prefix]int)
	for i := range c.Peers {
		p := &c.Peers[i]
		p.AllowedIPs = maskedAndSorted(p.AllowedIPs)
		errs = append(errs, p.check(own)...)
		if i > 0 && !p.PublicKey.IsZero() && c.Peers[i-1].PublicKey == p.PublicKey {
			errs = append(errs, p.problem("PublicKey", p.PublicKey.String(), fmt.Sprintf("is the key of peer %s too: merge the two", c.Peers[i-1].label())))
		}
		for _, prefix := range p.AllowedIPs {
			if !prefix.IsValid() {
				continue // said by check
			}
			if j, taken := owner[prefix]; taken && c.Peers[j].PublicKey != p.PublicKey {
				errs = append(errs, p.problem("AllowedIPs", prefix.String(), fmt.Sprintf("is claimed by peer %s too: give it to one of them", c.Peers[j].label())))
				continue
			}
			owner[prefix] = i
		}
	}
	return c, errors.Join(errs...)
}

// check finds what no device could obey, and gives the endpoint its one spelling.
func (p *PeerConfig) check(own PublicKey) (errs []error) {
	if p.PublicKey.IsZero() {
		errs = append(errs, p.problem("PublicKey", "", "is missing"))
	}
	if p.PublicKey == own && !own.IsZero() {
		errs = append(errs, p.problem("PublicKey", p.PublicKey.String(), "is this device's own key: remove the peer"))
	}
	if k := p.PersistentKeepalive; k < 0 || k > 65535*time.Second || k%time.Second != 0 {
		errs = append(errs, p.problem("PersistentKeepalive", k.String(), "must be whole seconds from 0 to 65535"))
	}
	if !p.Endpoint.IsZero() {
		e, err := parseEndpoint(p.Endpoint.String())
		if err != nil {
			errs = append(errs, p.problem("Endpoint", p.Endpoint.String(), err.Error()))
		} else {
			p.Endpoint = e
		}
	}
	for _, prefix := range p.AllowedIPs {
		if !prefix.IsValid() {
			errs = append(errs, p.problem("AllowedIPs", prefix.String(), "is not a prefix"))
		}
	}
	return errs
}

func (p *PeerConfig) problem(field, value, reason string) error {
	return &ConfigError{Peer: p.PublicKey, Name: p.Name, Source: p.Source, Field: field, Value: value, Reason: reason}
}

// label is the shortest text that tells an operator which peer is meant.
func (p *PeerConfig) label() string {
	switch {
	case p.Name != "" && p.Source != "":
		return fmt.Sprintf("%s (%s, %s)", p.PublicKey.Short(), p.Name, p.Source)
	case p.Name != "" || p.Source != "":
		return fmt.Sprintf("%s (%s)", p.PublicKey.Short(), cmp.Or(p.Name, p.Source))
	}
	return p.PublicKey.String()
}

// ConfigError is one thing in a Config that cannot be obeyed. Value never holds a secret.
type ConfigError struct {
	Peer   PublicKey // zero for the device itself
	Name   string    // the peer's Name
	Source string    // the peer's Source
	Field  string    // wg-quick's word: PublicKey, AllowedIPs, Endpoint, …
	Value  string
	Reason string // what is wrong and what to do
}

func (e *ConfigError) Error() string {
	where := "device"
	if !e.Peer.IsZero() || e.Source != "" || e.Name != "" {
		p := PeerConfig{PublicKey: e.Peer, Name: e.Name, Source: e.Source}
		where = "peer " + p.label()
	}
	if e.Value == "" {
		return fmt.Sprintf("%s: %s %s", where, e.Field, e.Reason)
	}
	return fmt.Sprintf("%s: %s %s %s", where, e.Field, e.Value, e.Reason)
}

func maskedAndSorted(prefixes []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if addr := p.Addr(); addr.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
		}
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, comparePrefix)
	return slices.Compact(out)
}

// comparePrefix orders by family, address, length.
func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return cmp.Compare(a.Bits(), b.Bits())
}
