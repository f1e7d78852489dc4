package mesh

import (
	"net/netip"
	"time"

	"github.com/stillwire/stillwire/device"
)

// Mode is how a node carries the packets of the mesh.
type Mode string

// The modes.
const (
	TUN      Mode = "tun"      // a kernel TUN: pods and processes of the machine use the mesh
	Netstack Mode = "netstack" // a TCP/IP stack in the process, without any privilege
)

// Topology is which nodes have a tunnel between them.
type Topology string

// The topologies.
const (
	// Full gives every pair of nodes a tunnel.
	Full Topology = "full"
	// ByLocation gives a tunnel to every pair of locations, between one leader of each.
	ByLocation Topology = "location"
	// Cross gives a tunnel to every pair of nodes of different locations.
	Cross Topology = "cross"
)

// Encapsulation is how packets between nodes of one location travel.
type Encapsulation string

// The ways inside a location.
const (
	Native    Encapsulation = "native"    // routed as they are, which needs a network that lets them pass
	VXLAN     Encapsulation = "vxlan"     // RFC 7348
	IPIP      Encapsulation = "ipip"      // RFC 2003, IPv4 alone
	Geneve    Encapsulation = "geneve"    // RFC 8926
	Encrypted Encapsulation = "encrypted" // through a tunnel, as between locations
)

// Settings are what all nodes of a mesh must agree on.
type Settings struct {
	Topology Topology      // "": Full
	Inside   Encapsulation // "": Native. Of no meaning in the full topology.
	// Subnets are where mesh addresses are taken from, at most one of each family counts for
	// a node. None: 10.4.0.0/16.
	Subnets []netip.Prefix
	// ClusterCIDRs hold the pods of all nodes. What of them is no node's yet, as this one knows,
	// leaves by no way. None: only what is known to be a node's is kept from leaving in clear.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the addresses of the cluster's services. They are never routed into a
	// tunnel nor masqueraded.
	ServiceCIDRs []netip.Prefix
	// IgnoreInternalIPs treats every node as if it had no internal IP.
	IgnoreInternalIPs bool
	// AllowDefaultRoute lets a peer or node have 0.0.0.0/0 and ::/0.
	AllowDefaultRoute bool
}

// Identity tells which of two objects that claim one thing was there first: Created, then
// UID, then the name. It is the same on every node.
type Identity struct {
	Name    string
	UID     string    // "" where the source has none
	Created time.Time // zero where the source does not know: older than any other
	// Undeclared says that no administrator has asked for the object, it was only seen: younger
	// than all that are declared.
	Undeclared bool
	Source     string // where the object stands, such as "mesh.yaml:12" or "meshnode/a"; never compared
}

// Node is a member of the mesh that runs an agent. What Spec says is the administrator's,
// what Status says is the node's own.
type Node struct {
	Identity
	Spec   NodeSpec
	Status NodeStatus
	// PodCIDRs are the addresses of the node's pods.
	PodCIDRs []netip.Prefix
	// NodeIPs are the internal addresses that the cluster knows the node by: of those that the node
	// finds, these go first.
	NodeIPs []netip.Addr
	// NotReady says that the cluster calls the node not ready. It stays a member, and does not
	// become a leader.
	NotReady bool
}

// NodeSpec is what an administrator says of a node.
type NodeSpec struct {
	Location string // nodes of one location reach each other without a tunnel; "" is one too
	Leader   bool   // preferred as the leader of its location
	// Endpoint is where others reach the node. None: found by the node itself, or learnt.
	Endpoint device.Endpoint
	// InternalIPs are the addresses inside the location, best first, at most one of each family
	// counts. None: those that the node finds.
	InternalIPs []netip.Addr
	// NoInternalIP says that the node has none that others could use: it is a location alone.
	NoInternalIP        bool
	PersistentKeepalive time.Duration // towards all its peers, whole seconds; 0: as needed behind NAT
	ExtraPrefixes       []netip.Prefix
	ListenPort          uint16 // 0: that of the endpoint, or 51820
	MTU                 int    // of the inner packets, bytes; 0: found from the path
}

// NodeStatus is what the agent of a node says of itself. It is written by that node alone, and
// only when it changes.
type NodeStatus struct {
	PublicKey   device.PublicKey // zero: the agent has not spoken yet
	Mode        Mode             // "": TUN
	ListenPort  uint16           // where the device listens; 0: not known
	InternalIPs []netip.Addr     // found on the machine, best first
	Endpoints   []netip.AddrPort // global addresses of the machine with the port, best first
	// MeshAddresses are claims, one of each family at most.
	MeshAddresses []netip.Addr
	// Learned is where packets of others really come from, by their key: of peers whose
	// endpoint is not what they say themselves.
	Learned map[device.PublicKey]netip.AddrPort
	// Leads is the term of the node's claim to lead its location; 0: it does not.
	Leads uint64
	// Unreachable are the names of nodes that do not answer this one inside the tunnel.
	Unreachable []string
}

// Peer is a member that runs no agent of ours: a laptop, a phone, another network.
type Peer struct {
	Identity
	PublicKey           device.PublicKey
	PresharedKey        device.PresharedKey // none: no preshared key
	Endpoint            device.Endpoint     // none: the peer speaks first
	PersistentKeepalive time.Duration       // whole seconds; 0 is off
	AllowedIPs          []netip.Prefix
	MeshAddresses       []netip.Addr // allowed as well, and kept free for it
}

// Older reports whether the object was there before the other. No two objects of one kind are
// of one age.
func (i Identity) Older(other Identity) bool { return i.compare(other) < 0 }

func (i Identity) compare(other Identity) int {
	if i.Undeclared != other.Undeclared {
		return falseFirst(i.Undeclared, other.Undeclared)
	}
	if c := i.Created.Compare(other.Created); c != 0 {
		return c
	}
	if i.UID != other.UID {
		if i.UID < other.UID {
			return -1
		}
		return 1
	}
	switch {
	case i.Name < other.Name:
		return -1
	case i.Name > other.Name:
		return 1
	}
	return 0
}
