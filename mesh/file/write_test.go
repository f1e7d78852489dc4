package file

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

func TestReadIsTheInverseOfWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawUpdate(t)
		var text bytes.Buffer
		if err := Write(&text, want, WithSecrets); err != nil {
			t.Fatal(err)
		}
		got, err := Read("all.yaml", bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, meaning()); diff != "" {
			t.Fatalf("update (-written +read):\n%s\n%s", diff, &text)
		}
	})
}

func TestPublishedStatusIsReadAsItWas(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir})
	rapid.Check(t, func(t *rapid.T) {
		want := drawStatus(t)
		if err := s.Publish(t.Context(), "a", want); err != nil {
			t.Fatal(err)
		}
		u, err := Load(dir)
		if err != nil || len(u.Problems) > 0 || len(u.Nodes) != 1 {
			t.Fatalf("read %v: %v", u, err)
		}
		if diff := cmp.Diff(want, u.Nodes[0].Status, meaning()); diff != "" {
			t.Fatalf("status (-published +read):\n%s", diff)
		}
	})
}

func TestSecretsAreWrittenOnRequestAlone(t *testing.T) {
	psk, err := device.NewPresharedKey()
	must(t, err)
	u := mesh.Update{Peers: []mesh.Peer{{Identity: mesh.Identity{Name: "laptop"}, PublicKey: key(1), PresharedKey: psk}}}
	var plain, secret bytes.Buffer
	must(t, Write(&plain, u), Write(&secret, u, WithSecrets))
	if strings.Contains(plain.String(), psk.Reveal()) || strings.Contains(plain.String(), "presharedKey") {
		t.Errorf("written without being asked for:\n%s", &plain)
	}
	if !strings.Contains(secret.String(), psk.Reveal()) {
		t.Error("not written on request")
	}
}

func TestStatusThatIsPublishedAlreadyIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir})
	must(t, s.Publish(t.Context(), "a", mesh.NodeStatus{PublicKey: key(1)}))
	before, err := os.Stat(filepath.Join(dir, "status", "a.yaml"))
	must(t, err, s.Publish(t.Context(), "a", mesh.NodeStatus{PublicKey: key(1)}))
	after, err := os.Stat(filepath.Join(dir, "status", "a.yaml"))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the file was replaced by an equal one")
	}
}

func TestStatusOfAPathIsNotPublished(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", "..", "../a", "a/b", "A", strings.Repeat("a", 254)} {
		if err := New(Options{Dir: dir}).Publish(t.Context(), name, mesh.NodeStatus{}); err == nil {
			t.Errorf("node %q: want an error", name)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left in the directory: %v", left)
	}
}

func drawUpdate(t *rapid.T) mesh.Update {
	u := mesh.Update{Source: "files", Synced: true}
	for _, id := range drawIdentities(t, "nodes") {
		u.Nodes = append(u.Nodes, drawNode(t, id))
	}
	for _, id := range drawIdentities(t, "peers") {
		u.Peers = append(u.Peers, drawPeer(t, id))
	}
	if rapid.Bool().Draw(t, "settings") {
		u.Settings = drawSettings(t)
	}
	return u
}

func drawIdentities(t *rapid.T, what string) (out []mesh.Identity) {
	for i := range rapid.IntRange(0, 3).Draw(t, what) {
		id := mesh.Identity{Name: fmt.Sprintf("%s-%d.example", rapid.StringMatching("[a-z0-9]{1,5}").Draw(t, "name"), i)}
		id.Name = fmt.Sprintf("%d-%s", i, id.Name)
		id.UID = drawWords(t, "uid")
		id.Undeclared = rapid.Bool().Draw(t, "undeclared")
		if rapid.Bool().Draw(t, "created") {
			id.Created = time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanoseconds")).UTC()
		}
		out = append(out, id)
	}
	return out
}

func drawNode(t *rapid.T, id mesh.Identity) mesh.Node {
	n := mesh.Node{
		Identity: id,
		Spec: mesh.NodeSpec{
			Location:            drawWords(t, "location"),
			Leader:              rapid.Bool().Draw(t, "leader"),
			Endpoint:            drawEndpoint(t),
			InternalIPs:         rapid.SliceOfN(addresses(), 0, 3).Draw(t, "internalIPs"),
			PersistentKeepalive: drawKeepalive(t),
			ExtraPrefixes:       drawPrefixes(t),
			ListenPort:          rapid.Uint16().Draw(t, "listenPort"),
			MTU:                 rapid.OneOf(rapid.Just(0), rapid.IntRange(scan.MinMTU, scan.MaxMTU)).Draw(t, "mtu"),
		},
		PodCIDRs: drawPrefixes(t),
		NodeIPs:  rapid.SliceOfN(addresses(), 0, 2).Draw(t, "nodeIPs"),
		NotReady: rapid.Bool().Draw(t, "notReady"),
		Status:   drawStatus(t),
	}
	if rapid.Bool().Draw(t, "none") {
		n.Spec.NoInternalIP, n.Spec.InternalIPs = true, nil
	}
	return n
}

func drawStatus(t *rapid.T) mesh.NodeStatus {
	s := mesh.NodeStatus{
		PublicKey:     rapid.SampledFrom([]device.PublicKey{{}, key(1), key(2)}).Draw(t, "publicKey"),
		Mode:          rapid.SampledFrom([]mesh.Mode{"", mesh.TUN, mesh.Netstack}).Draw(t, "mode"),
		ListenPort:    rapid.Uint16().Draw(t, "port"),
		InternalIPs:   rapid.SliceOfN(addresses(), 0, 3).Draw(t, "internalIPs"),
		Endpoints:     rapid.SliceOfN(addrPorts(), 0, 3).Draw(t, "endpoints"),
		MeshAddresses: rapid.SliceOfN(addresses(), 0, 2).Draw(t, "meshAddresses"),
		Leads:         rapid.Uint64().Draw(t, "leads"),
		Unreachable:   rapid.SliceOfN(rapid.StringMatching("[a-z]{1,4}"), 0, 3).Draw(t, "unreachable"),
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "learned") {
		if s.Learned == nil {
			s.Learned = make(map[device.PublicKey]netip.AddrPort)
		}
		s.Learned[key(byte(i))] = addrPorts().Draw(t, "endpoint")
	}
	return s
}

func drawPeer(t *rapid.T, id mesh.Identity) mesh.Peer {
	p := mesh.Peer{
		Identity:            id,
		PublicKey:           key(rapid.Byte().Draw(t, "publicKey")),
		Endpoint:            drawEndpoint(t),
		PersistentKeepalive: drawKeepalive(t),
		AllowedIPs:          drawPrefixes(t),
		MeshAddresses:       rapid.SliceOfN(addresses(), 0, 2).Draw(t, "meshAddresses"),
	}
	if rapid.Bool().Draw(t, "preshared") {
		psk, err := device.NewPresharedKey()
		if err != nil {
			t.Fatal(err)
		}
		p.PresharedKey = psk
	}
	return p
}

func drawSettings(t *rapid.T) *mesh.Settings {
	return &mesh.Settings{
		Topology:          rapid.SampledFrom([]mesh.Topology{"", mesh.Full, mesh.ByLocation, mesh.Cross}).Draw(t, "topology"),
		Inside:            rapid.SampledFrom([]mesh.Encapsulation{"", mesh.Native, mesh.VXLAN, mesh.IPIP, mesh.Geneve, mesh.Encrypted}).Draw(t, "inside"),
		Subnets:           drawPrefixes(t),
		ClusterCIDRs:      drawPrefixes(t),
		ServiceCIDRs:      drawPrefixes(t),
		IgnoreInternalIPs: rapid.Bool().Draw(t, "ignoreInternalIPs"),
		AllowDefaultRoute: rapid.Bool().Draw(t, "allowDefaultRoute"),
	}
}

func drawWords(t *rapid.T, what string) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "null", "~", "true", "1", "-", "a: b", " a ", "# a", "'", "\"", "!x", "&x", "*x", "{", "2026-01-02", "é", "日本", "a\\b"}),
		rapid.StringMatching(`[ -~]{0,20}`),
	).Draw(t, what)
}

func drawEndpoint(t *rapid.T) device.Endpoint {
	host := rapid.SampledFrom([]string{"", "192.0.2.1", "2001:db8::1", "fe80::1%eth0", "a.example", "a_b.example."}).Draw(t, "host")
	if host == "" {
		return device.Endpoint{}
	}
	return device.Endpoint{Host: host, Port: rapid.Uint16Range(1, 65535).Draw(t, "port")}
}

func drawKeepalive(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 65535).Draw(t, "keepalive")) * time.Second
}

func addresses() *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"))
		if rapid.Bool().Draw(t, "IPv4") {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16(b).Unmap()
	})
}

func addrPorts() *rapid.Generator[netip.AddrPort] {
	return rapid.Custom(func(t *rapid.T) netip.AddrPort {
		return netip.AddrPortFrom(addresses().Draw(t, "address"), rapid.Uint16Range(1, 65535).Draw(t, "port"))
	})
}

func drawPrefixes(t *rapid.T) []netip.Prefix {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := addresses().Draw(t, "address")
		return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")).Masked()
	}), 0, 3).Draw(t, "prefixes")
}
