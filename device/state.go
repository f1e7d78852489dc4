package device

import (
	"net/netip"
	"time"
)

// State is what a device was seen to be. Peers are sorted by key. It holds no private key,
// and a preshared key only in the form that cannot print.
type State struct {
	PublicKey  PublicKey // zero: the device has no private key yet
	ListenPort uint16
	FwMark     uint32
	Peers      []PeerState
}

// PeerState is what one peer of a device was seen to be.
//
// An endpoint has three values. Declared is what the operator wrote. Applied is the address
// we last set, after resolving. Endpoint is live: where packets go now, which is where the
// peer's last authenticated packet came from when it has roamed.
type PeerState struct {
	PublicKey           PublicKey
	PresharedKey        PresharedKey
	Declared            Endpoint
	Applied             netip.AddrPort // invalid: never set by us
	Endpoint            netip.AddrPort // invalid: none
	EndpointProblem     string         // why Declared cannot be used as it is; "": nothing is wrong
	HandshakeProblem    string         // why there is no session, when that has been so for 10 s; "": nothing is wrong
	PersistentKeepalive time.Duration
	AllowedIPs          []netip.Prefix // masked, sorted
	LastHandshake       time.Time      // zero: never
	Handshakes          uint64         // with the peer since the device was opened
	ReceiveBytes        uint64
	TransmitBytes       uint64
	Name                string // as in PeerConfig
}

// Roamed reports whether the peer moved to an address other than the one we set.
func (p PeerState) Roamed() bool {
	return p.Endpoint.IsValid() && p.Applied.IsValid() && p.Endpoint != p.Applied
}
