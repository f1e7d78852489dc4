package mesh

import (
	"net/netip"

	"github.com/stillwire/stillwire/device"
)

// Plan is all that one node shall be. It is a value made by MakePlan: the same facts make the
// same plan, in whatever order they come.
type Plan struct {
	Self     string       // the node that the plan is for
	Location string       // its location
	Leaders  []Leadership // of the locations, by name; none but in the location topology
	// Device are the peers of the WireGuard device, by key. It has no private key: the agent
	// adds it.
	Device device.Config
	Host   HostPlan
	// Publish is what the node shall say of itself, as far as the plan decides it: mesh
	// addresses and the claim to lead.
	Publish Claims
	// Probes are the members that this node tests, by name.
	Probes []Probe
}

// Leadership is who carries a location.
type Leadership struct {
	Location string
	Leader   string
}

// Claims are what a node holds by saying so.
type Claims struct {
	MeshAddresses []netip.Addr // IPv4 first
	Leads         uint64       // as NodeStatus.Leads
}

// Probe is a node whose path is tested.
type Probe struct {
	Name    string
	Key     device.PublicKey
	Address netip.Addr // where its agent answers: a mesh address
	Tunnel  bool       // the path goes through a tunnel straight to it
	Carries bool       // others depend on it: it leads a location, or is next to
}

// HostPlan is what the machine around the device shall be. A host owns what it makes by its
// interface, route protocol, table, rule priorities and nftables table, and touches nothing else.
type HostPlan struct {
	MTU int // of the interface, bytes; 0: found by the host
	// Addresses are those of the interface, each as a prefix of one address, IPv4 first.
	Addresses []netip.Prefix
	// Routes by destination, IPv4 first. No two have one destination.
	Routes []Route
	// Forwarded are the routes to other nodes' internal IPs that the tunnels themselves are
	// reached at. Only what is forwarded from Local and Behind takes them, so that pods reach the
	// nodes by the way on which the answers come; what the machine itself sends goes as if they
	// were not there. By destination, IPv4 first; none is in Routes.
	Forwarded []Route
	// Encapsulation of the routes that need one; "": the host's choice.
	Encapsulation Encapsulation
	// Partial says that the facts may be incomplete: routes that are not of the plan stay, so that
	// what was theirs goes nowhere else.
	Partial  bool
	Firewall Firewall
	// ListenPort is the UDP port of the outer packets; 0: not known yet.
	ListenPort uint16
}

// Via is how a route leaves the machine.
type Via string

// The ways.
const (
	ViaTunnel       Via = "tunnel"       // into the WireGuard device
	ViaNative       Via = "native"       // to a gateway on a link of the machine
	ViaEncapsulated Via = "encapsulated" // to a gateway, in VXLAN, IPIP or Geneve
)

// Route is one remote prefix.
type Route struct {
	Dst netip.Prefix
	Via Via
	// Gateway is the next node's internal IP; none in a tunnel.
	Gateway netip.Addr
	// Src is the address that this machine's own packets take: its mesh address of the family.
	// None: the kernel's choice.
	Src netip.Addr
	// MTU is the largest packet of this way, bytes; 0: that of the interface.
	MTU int
	// Member is whose prefix it is, for people.
	Member string
}

// Firewall is the content of the sets of the host's nftables table. The rules that use them are
// constant. All are masked and sorted, IPv4 first, and no prefix lies within another of its set.
type Firewall struct {
	// Reserved are the mesh's own ranges: a packet to one of them leaves by a route of the plan,
	// or not at all. Unlike the others they hold what is Tunnelled, Native or Local.
	Reserved []netip.Prefix
	// Tunnelled are the remote prefixes behind the tunnel: a packet to one of them never leaves
	// by another interface, and one that comes out of the tunnel comes from one of them.
	Tunnelled []netip.Prefix
	// Native are the remote prefixes of this location, reached without a tunnel of ours.
	Native []netip.Prefix
	// Local are this node's own: pods, mesh addresses, extra prefixes.
	Local []netip.Prefix
	// Behind are those besides Local for which this node is the way into the tunnel: those of
	// its location when it leads it. Only packets from Local and Behind, and those that came out
	// of the tunnel, may enter it.
	Behind []netip.Prefix
	// Pods are this node's pods, the sources that may be masqueraded.
	Pods []netip.Prefix
	// Inside are the destinations that are never masqueraded: pods, mesh addresses and services.
	Inside []netip.Prefix
	// Neighbours are the internal IPs of the nodes of this location: packets to this node's
	// mesh address may come from them without a tunnel.
	Neighbours []netip.Prefix
	// Outer are the destinations of HostPlan.Forwarded: sources of what comes out of the tunnel
	// beside Tunnelled.
	Outer []netip.Prefix
}
