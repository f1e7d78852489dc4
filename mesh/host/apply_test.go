//go:build linux

package host_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
	"github.com/stillwire/stillwire/test/netns"
)

func TestMachineIsMadeFromNothing(t *testing.T) {
	r := newRig(t)
	var planned []mesh.HostChange
	err := r.node.Do(func() (err error) {
		planned, err = r.host.Plan(plan())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`link stillwire0: "" -> "tun" `,
		`link stillwire0: "" -> "mtu 1420" `,
		`link stillwire0: "down" -> "up" `,
		`sysctl net.ipv4.ip_forward: "0" -> "1" `,
		`sysctl net.ipv6.conf.all.forwarding: "0" -> "1" `,
		`address 10.4.0.1/32: "" -> "dev stillwire0" `,
		`address fd04::1/128: "" -> "dev stillwire0" `,
		`table inet stillwire: "" -> "5 chains, 35 rules, 25 sets, 21 elements" `,
		`route 10.2.0.0/24 at last: "" -> "unreachable" `,
		`route 10.4.0.1/32 at last: "" -> "unreachable" `,
		`route fd02::/64 at last: "" -> "unreachable" `,
		`route fd04::1/128 at last: "" -> "unreachable" `,
		`rule 32764 IPv4: "" -> "not fwmark 0x3053 lookup main suppress_prefixlength 0" `,
		`rule 32764 IPv6: "" -> "not fwmark 0x3053 lookup main suppress_prefixlength 0" `,
		`rule 32765 IPv4: "" -> "not fwmark 0x3053 lookup 7108" `,
		`rule 32765 IPv6: "" -> "not fwmark 0x3053 lookup 7108" `,
		`route 10.2.1.0/24 beneath: "" -> "unreachable" node b`,
		`route 10.2.1.0/24: "" -> "dev stillwire0 src 10.4.0.1" node b`,
		`route 10.4.0.2/32 beneath: "" -> "unreachable" node b`,
		`route 10.4.0.2/32: "" -> "dev stillwire0 src 10.4.0.1" node b`,
		`route fd02:0:0:1::/64 beneath: "" -> "unreachable" node b`,
		`route fd02:0:0:1::/64: "" -> "dev stillwire0 src fd04::1" node b`,
		`route fd04::2/128 beneath: "" -> "unreachable" node b`,
		`route fd04::2/128: "" -> "dev stillwire0 src fd04::1" node b`,
		`rule 7106 IPv4: "" -> "fwmark 0x3054 lookup 7109" `,
		`rule 7106 IPv6: "" -> "fwmark 0x3054 lookup 7109" `,
		`rule 7107 IPv4: "" -> "not fwmark 0x3053 lookup 7107 suppress_prefixlength 0" `,
		`rule 7107 IPv6: "" -> "not fwmark 0x3053 lookup 7107 suppress_prefixlength 0" `,
	}
	wantChanges(t, planned, want...)
	if out, err := r.tryRun("ip", "link", "show", "dev", "stillwire0"); err == nil {
		t.Errorf("planning has made a link: %s", out)
	}
	wantChanges(t, r.apply(plan()), want...)
	wantLines(t, r.run("ip", "-4", "route", "show", "table", "7107"),
		"10.2.1.0/24 dev stillwire0 proto 107 scope link src 10.4.0.1 linkdown",
		"unreachable 10.2.1.0/24 proto 107 metric 2147483647",
		"10.4.0.2 dev stillwire0 proto 107 scope link src 10.4.0.1 linkdown",
		"unreachable 10.4.0.2 proto 107 metric 2147483647")
	wantLines(t, r.run("ip", "rule"),
		"0:	from all lookup local",
		"7106:	from all fwmark 0x3054 lookup 7109 proto 107",
		"7107:	not from all fwmark 0x3053 lookup 7107 suppress_prefixlength 0 proto 107",
		"32764:	not from all fwmark 0x3053 lookup main suppress_prefixlength 0 proto 107",
		"32765:	not from all fwmark 0x3053 lookup 7108 proto 107",
		"32766:	from all lookup main", "32767:	from all lookup default")
}

func wantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.TrimSpace(line))
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// counter counts all that the kernel tells of a namespace.
type counter []int

func listenAll(t *testing.T, ns *netns.Namespace) (c counter) {
	t.Helper()
	err := ns.Do(func() error {
		for protocol, groups := range map[int][]int{
			unix.NETLINK_ROUTE: {unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
				unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF},
			unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
		} {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
			if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return err
			}
			for _, g := range groups {
				if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
					return err
				}
			}
			c = append(c, fd)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// drain returns how many datagrams came since.
func (c counter) drain() (n int) {
	b := make([]byte, 64<<10)
	for _, fd := range c {
		for {
			if got, err := unix.Read(fd, b); got <= 0 || err != nil {
				break
			}
			n++
		}
	}
	return n
}

func TestSamePlanAgainWritesNothing(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	all := listenAll(t, r.node)
	for range 3 {
		wantChanges(t, r.apply(plan()))
	}
	r.host = r.restarted()
	wantChanges(t, r.apply(plan()))
	if n := all.drain(); n != 0 {
		t.Errorf("the kernel tells of %d changes", n)
	}
}

func TestOnlyTheDifferenceIsWritten(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	all := listenAll(t, r.node)
	wantChanges(t, r.apply(with(plan(), "10.3.0.0/24")),
		`set tunnelled4: "" -> "10.3.0.0/24" `,
		`route 10.3.0.0/24: "" -> "dev stillwire0" node c`,
		`route 10.3.0.0/24 beneath: "" -> "unreachable" node c`)
	// Two routes and one transaction: the element and the generation.
	if n := all.drain(); n != 4 {
		t.Errorf("the kernel tells of %d changes", n)
	}
	moved := with(plan(), "10.3.0.0/24")
	last := len(moved.Routes) - 1
	moved.Routes[last] = mesh.Route{Dst: moved.Routes[last].Dst, Via: mesh.ViaNative, Gateway: addr("192.0.2.2"), Member: "node c"}
	moved.Firewall.Tunnelled = plan().Firewall.Tunnelled
	moved.Firewall.Native = prefixes("10.3.0.0/24")
	wantChanges(t, r.apply(moved),
		`set native4: "" -> "10.3.0.0/24" `, `set tunnelled4: "10.3.0.0/24" -> "" `,
		`route 10.3.0.0/24: "dev stillwire0" -> "via 192.0.2.2 dev lan" node c`)
	wantChanges(t, r.apply(plan()),
		`set native4: "10.3.0.0/24" -> "" `,
		`route 10.3.0.0/24: "via 192.0.2.2 dev lan" -> "" `, `route 10.3.0.0/24 beneath: "unreachable" -> "" `)
	p := plan()
	p.Addresses = prefixes("10.4.0.7/32", "fd04::1/128")
	for i := range p.Routes[:2] {
		p.Routes[i].Src = addr("10.4.0.7")
	}
	wantChanges(t, r.apply(p),
		`address 10.4.0.7/32: "" -> "dev stillwire0" `, `address 10.4.0.1/32: "dev stillwire0" -> "" `,
		`set mesh4: "" -> "10.4.0.7/32" `, `set mesh4: "10.4.0.1/32" -> "" `,
		`route 10.4.0.7/32 at last: "" -> "unreachable" `, `route 10.4.0.1/32 at last: "unreachable" -> "" `,
		`route 10.2.1.0/24: "dev stillwire0 src 10.4.0.1" -> "dev stillwire0 src 10.4.0.7" node b`,
		`route 10.4.0.2/32: "dev stillwire0 src 10.4.0.1" -> "dev stillwire0 src 10.4.0.7" node b`)
}

func TestPrefixGrowsInPlaceOfTheOld(t *testing.T) {
	r := newRig(t)
	r.apply(with(plan(), "10.3.0.0/24"))
	wantChanges(t, r.apply(with(plan(), "10.3.0.0/23")),
		`set tunnelled4: "" -> "10.3.0.0/23" `, `set tunnelled4: "10.3.0.0/24" -> "" `,
		`route 10.3.0.0/23: "" -> "dev stillwire0" node c`, `route 10.3.0.0/23 beneath: "" -> "unreachable" node c`,
		`route 10.3.0.0/24: "dev stillwire0" -> "" `, `route 10.3.0.0/24 beneath: "unreachable" -> "" `)
}

func TestDefaultRouteInTheTunnelKeepsTheLAN(t *testing.T) {
	r := newRig(t)
	e := r.open()
	p := plan()
	p.Routes = []mesh.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: mesh.ViaTunnel, Src: addr("10.4.0.1"), Member: "exit"}}
	p.Firewall.Tunnelled = prefixes("0.0.0.0/0")
	r.apply(p)
	wantChanges(t, r.apply(p))
	if _, err := r.node.Ping(addr("192.0.2.2"), 1, 8); err != nil {
		t.Errorf("the LAN: %v", err)
	}
	if _, err := r.node.Ping(addr("10.2.0.2"), 1, 8); err != nil {
		t.Errorf("a pod: %v", err)
	}
	if err := e.expectWhile(func() { send(t, r.node, addr("198.51.100.9"), 1) }, seen{addr("10.4.0.1"), addr("198.51.100.9")}); err != nil {
		t.Error(err)
	}
	wantLines(t, r.run("ip", "route", "get", "198.51.100.9", "mark", "0x3053"), "198.51.100.9 via 192.0.2.254 dev lan src 192.0.2.1 mark 0x3053 uid 0", "cache")
	var facts mesh.HostFacts
	r.node.Do(func() (err error) { facts, err = r.host.Facts(); return err })
	if len(facts.InternalIPs) == 0 || facts.InternalIPs[0] != addr("192.0.2.1") {
		t.Errorf("facts: %+v", facts)
	}
	// The tunnel gone, the world is out of reach and not in clear text.
	r.node.IP("link del stillwire0")
	if refused := send(t, r.node, addr("198.51.100.9"), 3); refused != 3 {
		t.Errorf("%d of 3 refused", refused)
	}
	r.apply(plan())
	if _, err := r.node.Ping(addr("198.51.100.9"), 1, 8); err != nil {
		t.Errorf("the world, without a default route in the tunnel: %v", err)
	}
}

func TestMTUComesFromTheWayOut(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*rig)
		want    int
	}{
		"both families":               {func(*rig) {}, 1420},
		"IPv4 alone":                  {func(r *rig) { r.run("ip", "-6", "route", "del", "default") }, 1440},
		"small link":                  {func(r *rig) { r.node.IP("link set lan mtu 1400") }, 1320},
		"large link":                  {func(r *rig) { r.node.IP("link set lan mtu 9000") }, 8920},
		"route's own":                 {func(r *rig) { r.node.IP("route replace default via 192.0.2.254 mtu 1400") }, 1340},
		"never below what IPv6 needs": {func(r *rig) { r.node.IP("link set lan mtu 1300") }, 1280},
		"none":                        {func(r *rig) { r.node.IP("route del default"); r.run("ip", "-6", "route", "del", "default") }, 1420},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			tt.prepare(r)
			r.apply(plan())
			if got := r.run("ip", "link", "show", "dev", "stillwire0"); !strings.Contains(got, fmt.Sprintf("mtu %d ", tt.want)) {
				t.Errorf("want %d: %s", tt.want, got)
			}
		})
	}
}

func TestTenThousandPrefixes(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	p := plan()
	for i := range 10000 {
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(11 + i>>16), byte(i >> 8), byte(i), 0}), 24)
		p.Routes = append(p.Routes, mesh.Route{Dst: dst, Via: mesh.ViaTunnel, Src: addr("10.4.0.1"), Member: "many"})
		p.Firewall.Tunnelled = append(p.Firewall.Tunnelled, dst)
		p.Firewall.Inside = append(p.Firewall.Inside, dst)
	}
	sort := func(f *mesh.Firewall) {
		for _, set := range [][]netip.Prefix{f.Tunnelled, f.Inside} {
			slices.SortFunc(set, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
		}
	}
	sort(&p.Firewall)
	rules := func() int { return strings.Count(r.run("nft", "list", "table", "inet", "stillwire"), "comment") }
	before, begun := rules(), time.Now()
	n := len(r.apply(p))
	t.Logf("%d changes in %v", n, time.Since(begun).Round(time.Millisecond))
	if want := 40000; n != want {
		t.Errorf("%d changes, want %d", n, want)
	}
	if after := rules(); after != before {
		t.Errorf("%d rules, before %d", after, before)
	}
	begun = time.Now()
	wantChanges(t, r.apply(p))
	t.Logf("a look that finds nothing takes %v", time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	less := p
	less.Routes = slices.Delete(slices.Clone(p.Routes), 5000, 5001)
	less.Firewall.Tunnelled = slices.DeleteFunc(slices.Clone(p.Firewall.Tunnelled), func(d netip.Prefix) bool { return d == p.Routes[5000].Dst })
	if n := len(r.apply(less)); n != 3 {
		t.Errorf("%d changes for one prefix less", n)
	}
	t.Logf("one prefix less takes %v", time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	r.apply(plan())
	t.Logf("all gone takes %v", time.Since(begun).Round(time.Millisecond))
}

// dump is all of a namespace that Uninstall must restore.
func dump(t *testing.T, ns *netns.Namespace) string {
	t.Helper()
	var all strings.Builder
	for _, args := range []string{"-d link", "addr", "-4 route show table all", "-6 route show table all", "-4 rule", "-6 rule"} {
		fmt.Fprintf(&all, "# ip %s\n%s", args, output(t, ns, "ip", strings.Fields(args)...))
	}
	fmt.Fprintf(&all, "# nft\n%s", output(t, ns, "nft", "-s", "list", "ruleset"))
	err := ns.Do(func() error {
		for _, root := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6"} {
			filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					b, _ := os.ReadFile(path)
					fmt.Fprintf(&all, "%s = %s\n", path, strings.TrimSpace(string(b)))
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestUninstallLeavesTheMachineAsItWas(t *testing.T) {
	r := newRig(t, func(o *host.Options) { o.Masquerade, o.ForwardRules = true, true })
	r.node.NFT("add table ip filter", "add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }", "add rule ip filter FORWARD tcp dport 22 counter accept")
	r.node.IP("route add 10.2.1.0/24 via 192.0.2.9 metric 500", "rule add pref 7106 fwmark 5 lookup main", "route add 10.5.0.0/24 via 192.0.2.9 table 7107", "rule add pref 7110 lookup 7107")
	r.node.Sysctl("net/ipv4/conf/pod/forwarding", "1")
	before := dump(t, r.node)
	r.apply(plan())
	r.apply(with(plan(), "10.3.0.0/24"))
	p := plan()
	p.Routes = append(p.Routes, mesh.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: mesh.ViaTunnel, Member: "exit"})
	p.Firewall.Tunnelled = append(prefixes("0.0.0.0/0"), p.Firewall.Tunnelled[2:]...)
	r.apply(p)
	if dump(t, r.node) == before {
		t.Fatal("nothing was installed")
	}
	r.host = nil // the agent died long ago
	t.Logf("%d things removed", len(r.uninstall()))
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(dump(t, r.node), "\n")); diff != "" {
		t.Errorf("uninstalled (-before +after):\n%s", diff)
	}
	if left, _ := os.ReadDir(r.stateDir); len(left) != 0 {
		t.Errorf("left in the state folder: %v", left)
	}
	wantChanges(t, r.uninstall())
}

func TestSysctlThatSomebodyElseHasSetSinceStays(t *testing.T) {
	r := newRig(t)
	r.node.Sysctl("net/ipv6/conf/all/forwarding", "1")
	r.apply(plan())
	r.node.Sysctl("net/ipv4/ip_forward", "0")
	r.apply(plan())
	changes := text(r.uninstall())
	if got := strings.TrimSpace(readFile(t, r.node, "/proc/sys/net/ipv4/ip_forward")); got != "0" {
		t.Errorf("ip_forward is %s after %v", got, changes)
	}
	if got := strings.TrimSpace(readFile(t, r.node, "/proc/sys/net/ipv6/conf/all/forwarding")); got != "1" {
		t.Errorf("IPv6 forwarding is %s, which was on before", got)
	}
}
