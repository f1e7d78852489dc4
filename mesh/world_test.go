package mesh

import (
	"fmt"
	"net/netip"
	"time"

	"pgregory.net/rapid"

	"github.com/stillwire/stillwire/device"
)

// key is a public key that is the same at each run.
func key(name string) (k device.PublicKey) {
	copy(k[:], name)
	k[31] = 1
	return k
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ap(s string) netip.AddrPort   { return netip.MustParseAddrPort(s) }
func endpoint(s string) device.Endpoint {
	e, err := device.ParseEndpoint(s)
	if err != nil {
		panic(err)
	}
	return e
}

// node is the i-th node of a tidy mesh, with an address in each family for everything.
func node(i int, location string) Node {
	name := string(rune('a' + i%26))
	if i >= 26 {
		name = fmt.Sprintf("n%03d", i)
	}
	return Node{
		Identity: Identity{Name: name, Created: time.Unix(int64(1000+i), 0)},
		Spec:     NodeSpec{Location: location},
		PodCIDRs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42 + byte(i>>8), byte(i), 0}), 24),
			prefix(fmt.Sprintf("fd42:0:0:%x::/64", i)),
		},
		Status: NodeStatus{
			PublicKey:     key(name),
			InternalIPs:   []netip.Addr{netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i + 1)})},
			Endpoints:     []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i + 1)}), DefaultPort)},
			MeshAddresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 4, byte(i >> 8), byte(i + 1)}), addr(fmt.Sprintf("fd04::%x", i+1))},
		},
	}
}

func dual(s Settings) Settings {
	s.Subnets = []netip.Prefix{prefix("10.4.0.0/16"), prefix("fd04::/64")}
	return s
}

// laptop is a peer without an agent.
func laptop() Peer {
	return Peer{
		Identity:   Identity{Name: "laptop", Created: time.Unix(2000, 0)},
		PublicKey:  key("laptop"),
		AllowedIPs: []netip.Prefix{prefix("10.4.200.1/32"), prefix("192.168.77.0/24")},
	}
}

// cities are three locations of two nodes each, and a laptop.
func cities(s Settings) Snapshot {
	snap := Snapshot{Settings: dual(s), Peers: []Peer{laptop()}}
	for i := range 6 {
		snap.Nodes = append(snap.Nodes, node(i, []string{"berlin", "oslo", "rome"}[i/2]))
	}
	return snap
}

// anyWorld draws a mesh in which much is wrong: keys, addresses, prefixes and names given twice,
// nonsense values, leaders that several claim.
func anyWorld(t *rapid.T) Snapshot {
	pick := func(label string, words ...string) string { return rapid.SampledFrom(words).Draw(t, label) }
	s := Snapshot{Settings: dual(Settings{
		Topology:          Topology(pick("topology", "", "full", "location", "location", "cross")),
		Inside:            Encapsulation(pick("inside", "", "native", "vxlan", "encrypted")),
		IgnoreInternalIPs: rapid.IntRange(0, 9).Draw(t, "ignore") == 0,
		AllowDefaultRoute: rapid.Bool().Draw(t, "default"),
		ServiceCIDRs:      []netip.Prefix{prefix("10.96.0.0/12")},
	})}
	count := rapid.IntRange(1, 9).Draw(t, "nodes")
	for i := range count {
		n := node(i, pick("location", "", "x", "y"))
		oddNode(t, &n, count)
		s.Nodes = append(s.Nodes, n)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "peers") {
		s.Peers = append(s.Peers, anyPeer(t, i))
	}
	return s
}

func oddNode(t *rapid.T, n *Node, count int) {
	odd := func(label string) bool { return rapid.IntRange(0, 6).Draw(t, label) == 0 }
	other := node(rapid.IntRange(0, count).Draw(t, "other"), "")
	if odd("key") {
		n.Status.PublicKey = rapid.SampledFrom([]device.PublicKey{other.Status.PublicKey, {}}).Draw(t, "key is")
	}
	if odd("pods") {
		n.PodCIDRs = rapid.SliceOfN(rapid.SampledFrom(oddPrefixes), 0, 2).Draw(t, "pods are")
	}
	if odd("internal") {
		n.Status.InternalIPs = append(other.Status.InternalIPs, netip.Addr{}, addr("127.0.0.1"))
	}
	if odd("mesh") {
		n.Status.MeshAddresses = append([]netip.Addr{addr("10.4.0.0"), addr("10.9.9.9")}, other.Status.MeshAddresses...)
	}
	if odd("none internal") {
		n.Spec.NoInternalIP = true
	}
	if odd("endpoints") {
		n.Status.Endpoints = nil
	}
	if odd("endpoint") {
		n.Spec.Endpoint = rapid.SampledFrom([]device.Endpoint{endpoint("203.0.113.9:1"), {Host: "127.0.0.1", Port: 5}, {Host: "a b", Port: 1}, endpoint("gw.example:51820")}).Draw(t, "endpoint is")
	}
	if odd("extra") {
		n.Spec.ExtraPrefixes = rapid.SliceOfN(rapid.SampledFrom(oddPrefixes), 0, 3).Draw(t, "extra are")
	}
	if odd("learned") {
		n.Status.Learned = map[device.PublicKey]netip.AddrPort{other.Status.PublicKey: ap("203.0.113.77:4000")}
	}
	n.Spec.Leader = odd("wish")
	n.NotReady = odd("not ready")
	n.Status.Leads = rapid.Uint64Range(0, 3).Draw(t, "leads")
	if odd("accuses") {
		n.Status.Unreachable = []string{other.Name, "nobody"}
	}
	if odd("mode") {
		n.Status.Mode = Netstack
	}
	if odd("created") {
		n.Created = time.Time{}
	}
}

func anyPeer(t *rapid.T, i int) Peer {
	p := laptop()
	p.Name = fmt.Sprintf("p%d", i)
	p.PublicKey = rapid.SampledFrom([]device.PublicKey{key(p.Name), key("a"), key("p0"), {}}).Draw(t, "peer key")
	p.AllowedIPs = rapid.SliceOfN(rapid.SampledFrom(oddPrefixes), 0, 4).Draw(t, "peer allowed")
	p.PersistentKeepalive = rapid.SampledFrom([]time.Duration{0, 25 * time.Second, time.Millisecond, -1}).Draw(t, "peer keepalive")
	return p
}

var oddPrefixes = []netip.Prefix{
	{}, prefix("10.42.0.0/24"), prefix("10.42.0.0/16"), prefix("10.42.1.128/25"), prefix("10.42.1.0/24"),
	prefix("10.4.0.1/32"), prefix("10.4.0.0/16"), prefix("172.16.0.1/32"), prefix("172.16.0.0/12"),
	prefix("0.0.0.0/0"), prefix("::/0"), prefix("127.0.0.0/8"), prefix("224.0.0.0/4"), prefix("fe80::/10"),
	prefix("10.96.0.10/32"), prefix("192.168.5.0/24"), prefix("192.168.5.9/24"), prefix("192.168.0.0/16"),
	prefix("fd42:0:0:1::/64"), prefix("fd42::/16"), prefix("198.18.0.1/32"), prefix("10.4.7.7/32"),
}
