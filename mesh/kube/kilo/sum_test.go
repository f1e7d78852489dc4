package kilo

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device"
)

// cluster is one of testdata/clusters.json.gz: objects, and what Kilo at 944dff57 makes of them.
type cluster struct {
	Granularity Granularity  `json:"granularity"`
	Subnet      netip.Prefix `json:"subnet"`
	Nodes       []struct {
		Name               string            `json:"name"`
		PodCIDR            string            `json:"podCIDR"`
		Region             string            `json:"region"`
		Annotations        map[string]string `json:"annotations"`
		LastSeenAgeSeconds int64             `json:"lastSeenAgeSeconds"`
	} `json:"nodes"`
	Peers  []PeerObject `json:"peers"`
	Expect struct {
		ReadyNodes              []string              `json:"readyNodes"`
		SegmentsAndPeersInOrder []peerText            `json:"segmentsAndPeersInOrder"`
		DeviceOf                map[string][]peerText `json:"deviceOf"`
	} `json:"expect"`
}

type peerText struct {
	PublicKey           string   `json:"publicKey"`
	Endpoint            string   `json:"endpoint"`
	AllowedIPs          []string `json:"allowedIPs"`
	PersistentKeepalive int64    `json:"persistentKeepalive"`
}

func clusters(t testing.TB) []cluster {
	t.Helper()
	f, err := os.Open("testdata/clusters.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Clusters []cluster `json:"clusters"`
	}
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all.Clusters) != 120 {
		t.Fatalf("%d clusters", len(all.Clusters))
	}
	return all.Clusters
}

var noon = time.Unix(1_800_000_000, 0)

// objects of a cluster as they are read at noon.
func (c cluster) objects() (list []NodeObject) {
	for _, n := range c.Nodes {
		o := NodeObject{Name: n.Name, PodCIDR: n.PodCIDR, Labels: map[string]string{}, Annotations: map[string]string{}}
		if n.Region != "" {
			o.Labels[DefaultLocationLabel] = n.Region
		}
		for name, value := range n.Annotations {
			o.Annotations[name] = value
		}
		o.Annotations[lastSeen] = strconv.FormatInt(noon.Unix()-n.LastSeenAgeSeconds, 10)
		list = append(list, o)
	}
	return list
}

// members are the nodes and peers that are ready, in a random order.
func (c cluster) members(r *rand.Rand) (nodes []Node, peers []Peer) {
	for _, o := range c.objects() {
		if n, _ := ReadNode(o, DefaultLocationLabel); n.Ready(noon) {
			nodes = append(nodes, n)
		}
	}
	for _, o := range c.Peers {
		if p, _ := ReadPeer(o); p.Ready() {
			peers = append(peers, p)
		}
	}
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	r.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	return nodes, peers
}

func textOf(k device.PublicKey, e device.Endpoint, prefixes []netip.Prefix, keepalive time.Duration) peerText {
	p := peerText{PublicKey: k.String(), Endpoint: e.String(), AllowedIPs: []string{}, PersistentKeepalive: int64(keepalive / time.Second)}
	for _, a := range prefixes {
		p.AllowedIPs = append(p.AllowedIPs, a.String())
	}
	return p
}

func TestEveryClusterComesToKilosSums(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	devices := 0
	for i, c := range clusters(t) {
		nodes, peers := c.members(r)
		m, err := Sum(nodes, peers, Options{c.Granularity, c.Subnet})
		if err != nil {
			t.Errorf("cluster %d: %v", i, err)
			continue
		}
		var ready []string
		order := []peerText{}
		for _, s := range m.Segments {
			for _, n := range s.Nodes {
				ready = append(ready, n.Name)
			}
		}
		slices.Sort(ready)
		if len(ready) == 0 { // who would be asked?
			if len(c.Expect.ReadyNodes) > 0 {
				t.Errorf("cluster %d: no node is ready, and of Kilo's %v are", i, c.Expect.ReadyNodes)
			}
			continue
		}
		for _, p := range m.Members(nodeOf(nodes, ready[0])) {
			order = append(order, textOf(p.PublicKey, p.Endpoint, p.AllowedIPs, 0))
		}
		if diff := cmp.Diff(c.Expect.ReadyNodes, ready); diff != "" {
			t.Errorf("cluster %d, ready nodes (-Kilo +ours):\n%s", i, diff)
		}
		if diff := cmp.Diff(c.Expect.SegmentsAndPeersInOrder, order); diff != "" {
			t.Errorf("cluster %d, segments and peers (-Kilo +ours):\n%s", i, diff)
		}
		for name, want := range c.Expect.DeviceOf {
			got := []peerText{}
			device, found := m.Device(name)
			for _, p := range device {
				got = append(got, textOf(p.PublicKey, p.Endpoint, p.AllowedIPs, p.PersistentKeepalive))
			}
			if diff := cmp.Diff(append([]peerText{}, want...), got); diff != "" || !found {
				t.Errorf("cluster %d, device of %s (-Kilo +ours):\n%s", i, name, diff)
			}
			devices++
		}
	}
	if devices != 473 {
		t.Errorf("%d devices compared", devices)
	}
}

func nodeOf(nodes []Node, name string) Node {
	return nodes[slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })]
}

func TestASubnetThatIsTooSmallIsNamed(t *testing.T) {
	var nodes []Node
	for i := range 4 {
		nodes = append(nodes, Node{Name: fmt.Sprint("n", i)})
	}
	_, err := Sum(nodes, nil, Options{PerNode, netip.MustParsePrefix("10.4.0.0/30")})
	if err == nil || !strings.Contains(err.Error(), "subnet 10.4.0.0/30 has addresses for 3 segments, and there are 4") {
		t.Errorf("error: %v", err)
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	k, err := device.ParsePublicKey("H3r4XpU7dEKP71tXeJvJAi/UyPkxnanSmo59OR72CzY=")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		own  Own
		want Node
	}{
		{"all", Own{
			Endpoint: device.Endpoint{Host: "2001:db8::7", Port: 51820}, InternalIP: netip.MustParsePrefix("10.1.0.5/24"), Key: k, LastSeen: noon,
			WireGuardIP: netip.MustParsePrefix("10.4.0.3/16"), Granularity: PerLocation,
			Discovered: map[device.PublicKey]netip.AddrPort{k: netip.MustParseAddrPort("198.51.100.135:20847")},
		}, Node{
			Name: "a", Endpoint: device.Endpoint{Host: "2001:db8::7", Port: 51820}, InternalIP: netip.MustParsePrefix("10.1.0.5/24"), Key: k, LastSeen: noon,
			Discovered: map[device.PublicKey]device.Endpoint{k: {Host: "198.51.100.135", Port: 20847}},
		}},
		{"little", Own{Key: k, LastSeen: noon, Granularity: PerNode}, Node{Name: "a", Key: k, LastSeen: noon}},
	} {
		written := tt.own.Annotations()
		got, problems := ReadNode(NodeObject{Name: "a", Annotations: written}, DefaultLocationLabel)
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || len(problems) > 0 {
			t.Errorf("%s: (-want +got)\n%s%v", tt.name, diff, problems)
		}
		if len(written) != len(Written()) {
			t.Errorf("%s: %d annotations are written, %d are known as written", tt.name, len(written), len(Written()))
		}
		for _, name := range Written() {
			if _, found := written[name]; !found {
				t.Errorf("%s: %s is not written", tt.name, name)
			}
		}
	}
	const want = `{"H3r4XpU7dEKP71tXeJvJAi/UyPkxnanSmo59OR72CzY=":{"IP":"198.51.100.135","Port":20847,"Zone":""}}`
	if got := discoveredText(map[device.PublicKey]netip.AddrPort{k: netip.MustParseAddrPort("198.51.100.135:20847")}); got != want {
		t.Errorf("discovered endpoints are %s, Kilo writes %s", got, want)
	}
}
