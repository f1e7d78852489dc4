package mesh

import (
	"net/netip"

	"github.com/stillwire/stillwire/device"
)

// Snapshot is all facts at one moment. It is not changed once made, and neither is what it
// points to.
type Snapshot struct {
	Nodes    []Node // in any order
	Peers    []Peer // in any order
	Settings Settings
	Local    Local
}

// Local is what only this machine can know.
type Local struct {
	// Links are the prefixes of the machine's own links, those of Stillwire not counted.
	Links []netip.Prefix
	// ControlPlane are the addresses at which this machine asks its sources. What this machine
	// sends there goes into a tunnel only while that is known to carry packets: else a tunnel that
	// fails would keep it from hearing how to mend it.
	ControlPlane []netip.Addr
	// Paths is what this node's own tests say, by key.
	Paths map[device.PublicKey]Path
}

// Verdict is whether packets get through to a member.
type Verdict string

// The verdicts.
const (
	Unknown        Verdict = "Unknown"        // not tested yet, or the member has no agent
	Up             Verdict = "Up"             // it answers
	HandshakeStale Verdict = "HandshakeStale" // no answer and no live session
	NoReply        Verdict = "NoReply"        // a live session, but no answer
)

// Path is what is known of the way to one member.
type Path struct {
	Verdict Verdict // "": Unknown
	// Failed are endpoints that were tried and not answered from, since the last answer.
	Failed []device.Endpoint
	// Declared is the endpoint that the device has as declared; none: it has none.
	Declared device.Endpoint
	// Live is where the member's packets come from; invalid: none came.
	Live netip.AddrPort
	// Leads is the claim that the member's last answer gave, as NodeStatus.Leads; 0: none.
	Leads uint64
}
