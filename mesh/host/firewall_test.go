//go:build linux

package host_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestOutOfTheTunnelComesOnlyWhatMay(t *testing.T) {
	r := newRig(t)
	e := r.open()
	r.apply(plan())
	for _, tt := range []struct{ name, src, dst, rule string }{
		{"remote pod to the mesh address", "10.2.1.7", "10.4.0.1", ""},
		{"remote pod to the mesh address, IPv6", "fd02:0:0:1::7", "fd04::1", ""},
		{"unknown source", "10.2.9.7", "10.4.0.1", "unknown source out of the tunnel, IPv4"},
		{"unknown source, IPv6", "fd02:0:0:9::7", "fd04::1", "unknown source out of the tunnel, IPv6"},
		{"public source", "198.51.100.9", "10.2.0.2", "unknown source out of the tunnel, IPv4"},
		{"own pod as source", "10.2.0.2", "10.4.0.1", "unknown source out of the tunnel, IPv4"},
		{"to the loopback", "10.2.1.7", "127.0.0.1", "loopback out of the tunnel, IPv4"},
		{"to the loopback, elsewhere", "10.2.1.7", "127.5.0.1", "loopback out of the tunnel, IPv4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := 0
			if tt.rule != "" {
				before = r.dropped(tt.rule)
			}
			e.echo(addr(tt.src), addr(tt.dst))
			if tt.rule == "" {
				if err := e.expect(seen{addr(tt.dst), addr(tt.src)}); err != nil {
					t.Error(err)
				}
			} else if err := r.awaitDrop(tt.rule, before); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLocalSourceIsDroppedAlsoWhenAllIsBehindTheTunnel(t *testing.T) {
	r := newRig(t)
	e := r.open()
	p := plan()
	p.Routes = []mesh.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: mesh.ViaTunnel}}
	p.Firewall.Tunnelled = prefixes("0.0.0.0/0")
	r.apply(p)
	rule := "local source out of the tunnel, IPv4"
	e.echo(addr("10.2.0.2"), addr("10.4.0.1"))
	if err := r.awaitDrop(rule, 0); err != nil {
		t.Error(err)
	}
}

func TestIntoTheTunnelGoesOnlyWhatIsFromHere(t *testing.T) {
	r := newRig(t)
	e := r.open()
	p := plan()
	p.Firewall.Behind = prefixes("198.51.100.9/32")
	r.apply(p)
	send(t, r.pod, addr("10.2.1.5"), 1)
	send(t, r.pod, addr("fd02:0:0:1::5"), 1)
	send(t, r.node, addr("10.2.1.6"), 1)
	for _, want := range []seen{{addr("10.2.0.2"), addr("10.2.1.5")}, {addr("fd02::2"), addr("fd02:0:0:1::5")}, {addr("10.4.0.1"), addr("10.2.1.6")}} {
		if err := e.expect(want); err != nil {
			t.Error(err)
		}
	}
	r.lan.IP("route add 10.2.1.0/24 via 192.0.2.1 src 192.0.2.2")
	send(t, r.lan, addr("10.2.1.5"), 1)
	if err := r.awaitDrop("only local sources into the tunnel, IPv4", 0); err != nil {
		t.Error(err)
	}
	r.lan.IP("route replace 10.2.1.0/24 via 192.0.2.1 src 198.51.100.9")
	send(t, r.lan, addr("10.2.1.5"), 1)
	if err := e.expect(seen{addr("198.51.100.9"), addr("10.2.1.5")}); err != nil {
		t.Errorf("from behind: %v", err)
	}
}

func TestMeshAddressIsForThoseNearAlone(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	r.lan.IP("route add 10.4.0.1/32 via 192.0.2.1")
	for _, ns := range []interface {
		Ping(netip.Addr, int, int) (int, error)
	}{r.lan, r.pod, r.node} {
		if _, err := ns.Ping(addr("10.4.0.1"), 1, 8); err != nil {
			t.Errorf("%v: %v", ns, err)
		}
	}
	r.lan.IP("route replace 10.4.0.1/32 via 192.0.2.1 src 198.51.100.9")
	send(t, r.lan, addr("10.4.0.1"), 1)
	if err := r.awaitDrop("strangers to the mesh address, IPv4", 0); err != nil {
		t.Error(err)
	}
	// A pod's address from where the pod is not.
	r.lan.IP("addr add 10.2.0.77/32 dev node", "route replace 10.4.0.1/32 via 192.0.2.1 src 10.2.0.77")
	before := r.dropped("strangers to the mesh address, IPv4")
	send(t, r.lan, addr("10.4.0.1"), 1)
	if err := r.awaitDrop("strangers to the mesh address, IPv4", before); err != nil {
		t.Error(err)
	}
}

func TestOnlyWhatMustBeIsMasqueraded(t *testing.T) {
	r := newRig(t, func(o *host.Options) { o.Masquerade = true })
	e := r.open()
	r.apply(plan())
	r.lan.AddAddrs("node", "10.2.7.7/32", "fd02:0:0:7::7/128")
	r.node.IP("route add 10.2.7.0/24 via 192.0.2.2", "route add fd02:0:0:7::/64 via 2001:db8::2")
	r.lan.IP("route add 10.2.0.0/24 via 192.0.2.1", "route add fd02::/64 via 2001:db8::1")
	for _, tt := range []struct{ dst, want string }{
		{"198.51.100.9", "192.0.2.1"},
		{"2001:db8::2", "2001:db8::1"},
		{"10.2.7.7", "10.2.0.2"},
		{"fd02:0:0:7::7", "fd02::2"},
	} {
		if got, err := udpFlow(t, r.pod, r.lan, addr(tt.dst)).source(); err != nil || got.Addr() != addr(tt.want) {
			t.Errorf("from a pod to %s: it comes from %v, %v, want %s", tt.dst, got, err, tt.want)
		}
	}
	send(t, r.pod, addr("10.2.1.5"), 1)
	if err := e.expect(seen{addr("10.2.0.2"), addr("10.2.1.5")}); err != nil {
		t.Errorf("into the tunnel: %v", err)
	}
}

func TestNothingLeavesInClearText(t *testing.T) {
	remote := []string{"10.2.1.5", "fd02:0:0:1::5"}
	for name, damage := range map[string]func(*rig){
		"TUN is down":                func(r *rig) { r.node.IP("link set stillwire0 down") },
		"TUN is gone":                func(r *rig) { r.node.IP("link del stillwire0") },
		"TUN and nft table are gone": func(r *rig) { r.node.IP("link del stillwire0"); r.node.NFT("flush ruleset") },
		"TUN and routes are gone": func(r *rig) {
			r.node.IP("link del stillwire0", "route flush table 7107")
			r.run("ip", "-6", "route", "flush", "table", "7107")
		},
		"rules are gone": func(r *rig) { r.node.IP("rule del pref 7107"); r.run("ip", "-6", "rule", "del", "pref", "7107") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.apply(plan())
			r.lan.NFT("add table inet count", "add chain inet count in { type filter hook prerouting priority -500 ; }",
				"add rule inet count in ip daddr 10.2.1.0/24 counter", "add rule inet count in ip6 daddr fd02:0:0:1::/64 counter")
			count := func() int {
				return strings.Count(output(t, r.lan, "nft", "list", "table", "inet", "count"), "packets 20 ")
			}
			try := func() {
				for _, dst := range remote {
					send(t, r.pod, addr(dst), 10)
					send(t, r.node, addr(dst), 10)
				}
			}
			try()
			damage(r)
			try()
			if got := output(t, r.lan, "nft", "list", "table", "inet", "count"); strings.Count(got, "packets 0 ") != 2 {
				t.Errorf("in clear text:\n%s", got)
			}
			// The control: without any of it they would have left. The last ping tells that all
			// are there.
			r.uninstall()
			r.node.Sysctl("net/ipv4/ip_forward", "1")
			r.node.Sysctl("net/ipv6/conf/all/forwarding", "1")
			try()
			r.node.Ping(addr("192.0.2.2"), 1, 8)
			if count() != 2 {
				t.Errorf("the test tests nothing:\n%s", output(t, r.lan, "nft", "list", "table", "inet", "count"))
			}
		})
	}
}

func TestDropPolicyIsNamedOrOpened(t *testing.T) {
	drop := []string{
		"add table ip filter", "add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }",
		"add table inet firewalld", "add chain inet firewalld filter_FORWARD { type filter hook forward priority 10 ; }",
		"add rule inet firewalld filter_FORWARD ct state established accept", "add rule inet firewalld filter_FORWARD reject with icmpx type admin-prohibited",
	}
	r := newRig(t)
	r.node.NFT(drop...)
	e := r.open()
	_, problems, err := r.try(plan())
	if err != nil || len(problems) != 2 {
		t.Fatalf("problems %v, error %v", problems, err)
	}
	for i, want := range []string{"inet firewalld filter_FORWARD", "ip filter FORWARD"} {
		if p := problems[1-i]; p.Reason != mesh.HostConflict || p.Value != want || p.Field != "forward" {
			t.Errorf("problem: %v", p)
		}
	}
	send(t, r.pod, addr("10.2.1.5"), 1)

	r.options.ForwardRules = true
	r.host = r.restarted()
	before := r.run("nft", "-s", "list", "table", "ip", "filter")
	wantChanges(t, r.apply(plan()), `forward inet firewalld filter_FORWARD: "" -> "accept stillwire0" `, `forward ip filter FORWARD: "" -> "accept stillwire0" `)
	if again := r.apply(plan()); again != nil {
		t.Errorf("again: %v", text(again))
	}
	if err := e.expectWhile(func() { send(t, r.pod, addr("10.2.1.6"), 1) }, seen{addr("10.2.0.2"), addr("10.2.1.6")}); err != nil {
		t.Error(err)
	}
	e.dev.Close()
	r.uninstall()
	if after := r.run("nft", "-s", "list", "table", "ip", "filter"); after != before {
		t.Errorf("after uninstall:\n%s", after)
	}
}

func TestConnectionsOfMovedPrefixesAreForgotten(t *testing.T) {
	r := newRig(t, func(o *host.Options) { o.Masquerade = true })
	r.lan.AddAddrs("node", "10.66.0.1/32")
	r.node.IP("route add 10.66.0.0/24 via 192.0.2.2")
	r.lan.IP("route add 10.2.0.0/24 via 192.0.2.1")
	r.apply(plan())
	flow := udpFlow(t, r.pod, r.lan, addr("10.66.0.1"))
	other := udpFlow(t, r.pod, r.lan, addr("198.51.100.9"))
	for i, want := range []string{"192.0.2.1", "10.2.0.2", "192.0.2.1"} {
		p := plan()
		if i == 1 {
			p.Firewall.Inside = append(prefixes("10.66.0.0/24"), p.Firewall.Inside...)
		}
		r.apply(p)
		if got, err := flow.source(); err != nil || got.Addr() != addr(want) {
			t.Errorf("look %d: it comes from %v, %v, want %s", i, got, err, want)
		}
	}
	first, _ := other.source()
	r.apply(with(plan(), "10.66.9.0/24"))
	if again, err := other.source(); err != nil || again != first {
		t.Errorf("another connection was forgotten: from %v, %v, before %v", again, err, first)
	}
}

func TestOuterPacketsAreNotTrackedUnlessAFirewallNeedsIt(t *testing.T) {
	r := newRig(t)
	p := plan()
	p.ListenPort = 51820
	r.node.NFT("add table inet any", "add chain inet any in { type filter hook input priority 0 ; }", "add rule inet any in ct state new counter")
	tracked := func() bool {
		f := udpFlow(t, r.lan, r.node, addr("192.0.2.1"))
		f.out.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:51820")))
		f.source() // what came before is then there
		return strings.Contains(readFile(t, r.node, "/proc/thread-self/net/nf_conntrack"), "dport=51820")
	}
	r.apply(p)
	if tracked() {
		t.Error("an outer packet is tracked")
	}
	r.node.NFT("add table inet fw", "add chain inet fw in { type filter hook input priority 0 ; policy drop ; }", "add rule inet fw in udp dport != 1 accept")
	wantChanges(t, r.apply(p), `set untracked: "51820" -> "" `)
	if !tracked() {
		t.Error("an outer packet is not tracked where answers alone may come in")
	}
	r.node.NFT("delete table inet fw")
	wantChanges(t, r.apply(p), `set untracked: "" -> "51820" `)
}

func TestSegmentsAreMadeToFit(t *testing.T) {
	r := newRig(t)
	e := r.open()
	p := plan()
	p.MTU = 1300
	r.apply(p)
	if err := e.expectWhile(func() { send(t, r.pod, addr("10.2.1.5"), 1) }, seen{addr("10.2.0.2"), addr("10.2.1.5")}); err != nil {
		t.Fatal(err)
	}
	for dst, want := range map[string]int{"10.2.1.5": 1260, "fd02:0:0:1::5": 1240} {
		dial(t, r.pod, addr(dst))
		if got, err := e.segment(addr(dst)); err != nil || got != want {
			t.Errorf("to %s: a segment of %d, %v, want %d", dst, got, err, want)
		}
	}
}

func TestPacketTooBigIsAnswered(t *testing.T) {
	r := newRig(t)
	e := r.open()
	p := plan()
	p.MTU = 1300
	r.apply(p)
	if err := e.expectWhile(func() { send(t, r.pod, addr("10.2.1.5"), 1) }, seen{addr("10.2.0.2"), addr("10.2.1.5")}); err != nil {
		t.Fatal(err)
	}
	for _, dst := range []string{"10.2.1.5", "fd02:0:0:1::5"} {
		r.pod.Do(func() error {
			c, err := net.Dial("udp", netip.AddrPortFrom(addr(dst), 9).String())
			if err != nil {
				return err
			}
			defer c.Close()
			c.Write(make([]byte, 1400))
			return nil
		})
	}
	wait := time.Now().Add(5 * time.Second)
	known := func() string {
		four, _ := tryOutput(r.pod, "ip", "route", "get", "10.2.1.5")
		six, _ := tryOutput(r.pod, "ip", "route", "get", "fd02:0:0:1::5")
		return four + six
	}
	for strings.Count(known(), "mtu 1300") != 2 {
		if time.Now().After(wait) {
			t.Fatalf("the pod was not told:\n%s", known())
		}
		<-time.After(20 * time.Millisecond)
	}
}
