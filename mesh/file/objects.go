package file

import (
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

func (o *object) readNode(n *yaml.Node, id mesh.Identity) {
	node := mesh.Node{Identity: id}
	o.mapping(value{Node: n}, o.fields(&node.Identity,
		func(v value) {
			if o.status != "" {
				o.refuse(v, &fault{"is an administrator's and stands in a status file", "move it to a manifest"}, "it is not obeyed")
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
		one(o, "location", &s.Location, words),
		one(o, "leader", &s.Leader, boolean),
		one(o, "endpoint", &s.Endpoint, endpoint),
		{"internalIPs", func(v value) { o.internalIPs(v, s) }},
		one(o, "persistentKeepalive", &s.PersistentKeepalive, keepalive),
		many(o, "extraPrefixes", &s.ExtraPrefixes, prefix),
		many(o, "podCIDRs", &n.PodCIDRs, prefix),
		one(o, "listenPort", &s.ListenPort, port),
		one(o, "mtu", &s.MTU, mtu),
		one(o, "notReady", &n.NotReady, boolean),
	}
}

// internalIPs reads a list of addresses. The word none in their place says that there are none,
// with and without brackets.
func (o *object) internalIPs(v value, s *mesh.NodeSpec) {
	if v.Kind == yaml.ScalarNode && v.Value == none || v.Kind == yaml.SequenceNode && len(v.Content) == 1 && v.Content[0].Value == none {
		s.NoInternalIP = true
		return
	}
	many(o, "", &s.InternalIPs, address).read(v)
}

func (o *object) nodeStatus(s *mesh.NodeStatus) []field {
	return []field{
		{"publicKey", func(v value) { o.nodeKey(v, s) }},
		one(o, "mode", &s.Mode, mode),
		one(o, "listenPort", &s.ListenPort, port),
		many(o, "internalIPs", &s.InternalIPs, address),
		many(o, "endpoints", &s.Endpoints, addrPort),
		many(o, "meshAddresses", &s.MeshAddresses, address),
		{"learned", func(v value) { o.items(v, func(v value) { o.learned(v, s) }) }},
		one(o, "leads", &s.Leads, count),
		many(o, "unreachable", &s.Unreachable, objectName),
	}
}

func (o *object) nodeKey(v value, s *mesh.NodeStatus) {
	key, f := publicKey(v.Value)
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
			var f *fault
			if key, f = publicKey(v.Value); f != nil {
				o.problem(v, "", f, "this entry is left out")
				bad = true
			}
		}},
		field{"endpoint", func(v value) {
			var ok bool
			at, ok = scalar(o, v, addrPort, "this entry is left out")
			bad = bad || !ok
		}})
	if bad {
		return
	}
	if key.IsZero() || !at.IsValid() {
		o.refuse(v, &fault{"lacks its publicKey or endpoint", "write both"}, "this entry is left out")
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
		o.refuseKey(value{n, "spec.publicKey"}, &fault{"is missing", "write the key that wg pubkey prints on the peer's machine"})
	}
	if !o.lost {
		o.peers = append(o.peers, p)
	}
}

func (o *object) peerSpec(p *mesh.Peer) []field {
	return []field{
		{"publicKey", func(v value) {
			var f *fault
			if p.PublicKey, f = publicKey(v.Value); f != nil {
				o.refuseKey(v, f)
			}
		}},
		one(o, "endpoint", &p.Endpoint, endpoint),
		many(o, "allowedIPs", &p.AllowedIPs, prefix),
		one(o, "persistentKeepalive", &p.PersistentKeepalive, keepalive),
		many(o, "meshAddresses", &p.MeshAddresses, address),
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
		one(o, "topology", &s.Topology, topology),
		one(o, "inside", &s.Inside, encapsulation),
		many(o, "subnets", &s.Subnets, prefix),
		many(o, "clusterCIDRs", &s.ClusterCIDRs, prefix),
		many(o, "serviceCIDRs", &s.ServiceCIDRs, prefix),
		one(o, "ignoreInternalIPs", &s.IgnoreInternalIPs, boolean),
		one(o, "allowDefaultRoute", &s.AllowDefaultRoute, boolean),
	}
}

// presharedKey reads a key that stands in the manifest itself.
func (o *object) presharedKey(v value, p *mesh.Peer) {
	if !o.private {
		o.refuseKey(v, &fault{"stands in a file that others can read", "run chmod 600 on it and make a new key, or name a file with presharedKeyFile"})
		return
	}
	o.setPresharedKey(v, p, v.Value)
}

func (o *object) setPresharedKey(v value, p *mesh.Peer, text string) {
	key, err := device.ParsePresharedKey(text)
	switch {
	case err != nil || key.IsZero():
		o.refuseKey(v, &fault{"is not a WireGuard key", "make one with wg genpsk"})
	case !p.PresharedKey.IsZero():
		o.refuseKey(v, &fault{"is given twice", "keep presharedKey or presharedKeyFile"})
	}
	p.PresharedKey = key
}

// presharedKeyFile reads a key from the file that is named, as seen from the manifest.
func (o *object) presharedKeyFile(v value, p *mesh.Peer) {
	text, mode, err := o.readAside(v.Value)
	if err != nil {
		o.lost = true
		o.problem(v, shown(v.Value), &fault{"cannot be read: " + cause(err), "put the key there, readable by this process"}, "the peer is left out")
		return
	}
	if tooOpen(mode) {
		o.problem(v, shown(v.Value), &fault{fmt.Sprintf("can be changed or read by others (mode %04o)", mode), "run chmod 600 on it, or set defaultMode: 0400 on the volume"}, "its key is no secret, though it is used")
	}
	o.setPresharedKey(v, p, text)
}
