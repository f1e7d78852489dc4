package file

import (
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

func (o *object) readNode(n *yaml.Node, id mesh.Identity) {
	node := mesh.Node{Identity: id}
	o.mapping(value{Node: n}, o.fields(&node.Identity,
		func(v value) {
			if o.status != "" {
				o.refuse(v, scan.Bad("is an administrator's and stands in a status file", "move it to a manifest"), "it is not obeyed")
				return
			}
			o.mapping(v, o.nodeSpec(&node)...)
		},
		func(v value) {
			o.openMapping(v, o.nodeStatus(&node.Status)...)
		})...)
	o.nodes = append(o.nodes, node)
}

func (o *object) nodeSpec(n *mesh.Node) []field {
	s := &n.Spec
	return []field{
		one(o, "location", &s.Location, scan.Words),
		one(o, "leader", &s.Leader, scan.Bool),
		one(o, "endpoint", &s.Endpoint, scan.Endpoint),
		{"internalIPs", func(v value) { o.internalIPs(v, s) }},
		one(o, "persistentKeepalive", &s.PersistentKeepalive, scan.Keepalive),
		many(o, "extraPrefixes", &s.ExtraPrefixes, scan.Prefix),
		many(o, "podCIDRs", &n.PodCIDRs, scan.Prefix),
		one(o, "listenPort", &s.ListenPort, scan.Port),
		one(o, "mtu", &s.MTU, scan.MTU),
		many(o, "nodeIPs", &n.NodeIPs, scan.Addr),
		one(o, "notReady", &n.NotReady, scan.Bool),
	}
}

// internalIPs reads a list of addresses. The word none in their place says that there are none,
// with and without brackets.
func (o *object) internalIPs(v value, s *mesh.NodeSpec) {
	if v.Kind == yaml.ScalarNode && v.Value == none || v.Kind == yaml.SequenceNode && len(v.Content) == 1 && v.Content[0].Value == none {
		s.NoInternalIP = true
		return
	}
	many(o, "", &s.InternalIPs, scan.Addr).read(v)
}

func (o *object) nodeStatus(s *mesh.NodeStatus) []field {
	return []field{
		{"publicKey", func(v value) { o.nodeKey(v, s) }},
		one(o, "mode", &s.Mode, scan.Mode),
		one(o, "listenPort", &s.ListenPort, scan.Port),
		many(o, "internalIPs", &s.InternalIPs, scan.Addr),
		many(o, "endpoints", &s.Endpoints, scan.AddrPort),
		many(o, "meshAddresses", &s.MeshAddresses, scan.Addr),
		{"learned", func(v value) { o.items(v, func(v value) { o.learned(v, s) }) }},
		one(o, "leads", &s.Leads, scan.Count),
		many(o, "unreachable", &s.Unreachable, scan.Name),
	}
}

func (o *object) nodeKey(v value, s *mesh.NodeStatus) {
	key, f := scan.PublicKey(v.Value)
	if f != nil {
		o.problem(v, "", f, o.without)
	}
	s.PublicKey = key
}

func (o *object) learned(v value, s *mesh.NodeStatus) {
	var at netip.AddrPort
	var key device.PublicKey
	bad := false
	o.openMapping(v,
		field{"publicKey", func(v value) {
			var f *scan.Fault
			if key, f = scan.PublicKey(v.Value); f != nil {
				o.problem(v, "", f, "this entry is left out")
				bad = true
			}
		}},
		field{"endpoint", func(v value) {
			var ok bool
			at, ok = scalar(o, v, scan.AddrPort, "this entry is left out")
			bad = bad || !ok
		}})
	if bad {
		return
	}
	if key.IsZero() || !at.IsValid() {
		o.refuse(v, scan.Bad("lacks its publicKey or endpoint", "write both"), "this entry is left out")
		return
	}
	if s.Learned == nil {
		s.Learned = make(map[device.PublicKey]netip.AddrPort)
	}
	s.Learned[key] = at
}

func (o *object) readPeer(n *yaml.Node, id mesh.Identity) {
	p := mesh.Peer{Identity: id}
	o.mapping(value{Node: n}, o.fields(&p.Identity,
		func(v value) { o.mapping(v, o.peerSpec(&p)...) },
		func(value) {})...)
	if p.PublicKey.IsZero() && !o.lost {
		o.refuseKey(value{n, "spec.publicKey"}, scan.Bad("is missing", "write the key that wg pubkey prints on the peer's machine"))
	}
	if !o.lost {
		o.peers = append(o.peers, p)
	}
}

func (o *object) peerSpec(p *mesh.Peer) []field {
	return []field{
		{"publicKey", func(v value) {
			var f *scan.Fault
			if p.PublicKey, f = scan.PublicKey(v.Value); f != nil {
				o.refuseKey(v, f)
			}
		}},
		one(o, "endpoint", &p.Endpoint, scan.Endpoint),
		many(o, "allowedIPs", &p.AllowedIPs, scan.Prefix),
		one(o, "persistentKeepalive", &p.PersistentKeepalive, scan.Keepalive),
		many(o, "meshAddresses", &p.MeshAddresses, scan.Addr),
		{"presharedKey", func(v value) { o.presharedKey(v, p) }},
		{"presharedKeyFile", func(v value) { o.presharedKeyFile(v, p) }},
	}
}

func (o *object) readSettings(n *yaml.Node, id mesh.Identity) {
	var s mesh.Settings
	o.mapping(value{Node: n}, o.fields(&id, func(v value) { o.mapping(v, o.settingsSpec(&s)...) }, func(value) {})...)
	if o.lost {
		o.unsettled = true
		return
	}
	o.settings = append(o.settings, settingsObject{id, s})
}

func (o *object) settingsSpec(s *mesh.Settings) []field {
	return []field{
		one(o, "topology", &s.Topology, scan.Topology),
		one(o, "inside", &s.Inside, scan.Encapsulation),
		many(o, "subnets", &s.Subnets, scan.Prefix),
		many(o, "clusterCIDRs", &s.ClusterCIDRs, scan.Prefix),
		many(o, "serviceCIDRs", &s.ServiceCIDRs, scan.Prefix),
		one(o, "ignoreInternalIPs", &s.IgnoreInternalIPs, scan.Bool),
		one(o, "allowDefaultRoute", &s.AllowDefaultRoute, scan.Bool),
	}
}

// presharedKey reads a key that stands in the manifest itself.
func (o *object) presharedKey(v value, p *mesh.Peer) {
	if !o.private {
		o.refuseKey(v, scan.Bad("stands in a file that others can read", "run chmod 600 on it and make a new key, or name a file with presharedKeyFile"))
		return
	}
	o.setPresharedKey(v, p, v.Value)
}

func (o *object) setPresharedKey(v value, p *mesh.Peer, text string) {
	key, err := device.ParsePresharedKey(text)
	switch {
	case err != nil || key.IsZero():
		o.refuseKey(v, scan.Bad("is not a WireGuard key", "make one with wg genpsk"))
	case !p.PresharedKey.IsZero():
		o.refuseKey(v, scan.Bad("is given twice", "keep presharedKey or presharedKeyFile"))
	}
	p.PresharedKey = key
}

// presharedKeyFile reads a key from the file that is named, as seen from the manifest.
func (o *object) presharedKeyFile(v value, p *mesh.Peer) {
	text, mode, err := o.readAside(v.Value)
	if err != nil {
		o.lost = true
		o.problem(v, scan.Shown(v.Value), scan.Bad("cannot be read: "+cause(err), "put the key there, readable by this process"), "the peer is left out")
		return
	}
	if tooOpen(mode) {
		o.problem(v, scan.Shown(v.Value), scan.Bad(fmt.Sprintf("can be changed or read by others (mode %04o)", mode), "run chmod 600 on it, or set defaultMode: 0400 on the volume"), "its key is no secret, though it is used")
	}
	o.setPresharedKey(v, p, text)
}
