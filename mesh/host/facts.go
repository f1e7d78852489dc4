//go:build linux

package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// surroundings are all that a host needs to know of what is not its own.
type surroundings struct {
	links    []linkAddress
	names    map[int]string // links by index
	defaults map[int]defaultRoute
	ipv6     bool   // the kernel has it
	read     uint64 // Host.changes when it was read
}

// linkAddress is an address of a link that is not ours, with the prefix of the link.
type linkAddress struct {
	link    string
	address netip.Prefix // not masked
	usable  bool         // by others: neither temporary, deprecated nor tentative
}

// defaultRoute is how packets to the world leave the machine, those of the tunnel not counted.
type defaultRoute struct {
	link   string
	source netip.Addr
	mtu    int
	learnt bool // from a router advertisement
}

// Facts reads what the machine is like. While Run watches, it reads only after a change.
func (h *Host) Facts() (mesh.HostFacts, error) {
	k, err := openKernel()
	if err != nil {
		return mesh.HostFacts{}, err
	}
	defer k.close()
	around, err := h.around(k)
	if err != nil {
		return mesh.HostFacts{}, err
	}
	return around.facts(), nil
}

// around is read anew when Run has noticed a change since, or is not there to notice.
func (h *Host) around(k *kernel) (*surroundings, error) {
	now := h.changes.Load()
	if s := h.facts.Load(); s != nil && s.read == now && h.watched.Load() {
		return s, nil
	}
	s, err := k.readSurroundings(h.opt)
	if err != nil {
		return nil, err
	}
	s.read = now
	h.facts.Store(s)
	return s, nil
}

func (k *kernel) readSurroundings(o Options) (*surroundings, error) {
	s := &surroundings{names: make(map[int]string), defaults: make(map[int]defaultRoute)}
	_, err := os.Stat(filepath.Join(o.SysctlDir, "ipv6"))
	s.ipv6 = err == nil
	links, err := dumped(k.route.LinkList)
	if err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	mtus := make(map[int]int)
	for _, l := range links {
		s.names[l.Attrs().Index], mtus[l.Attrs().Index] = l.Attrs().Name, l.Attrs().MTU
	}
	addrs, err := dumped(func() ([]netlink.Addr, error) { return k.route.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("read addresses: %w", err)
	}
	for _, a := range addrs {
		if o.owns(s.names[a.LinkIndex]) || a.IP.IsLinkLocalUnicast() && a.IP.To4() == nil {
			continue
		}
		s.links = append(s.links, linkAddress{s.names[a.LinkIndex], prefixOf(a.IPNet, 0), usable(a)})
	}
	for family, somewhere := range worldwide() {
		r, found, err := k.askRoute(o, somewhere)
		if err != nil {
			return nil, err
		}
		if found {
			s.defaults[family] = defaultRoute{
				link: s.names[r.LinkIndex], source: addrOf(r.Src), mtu: cmp.Or(r.MTU, mtus[r.LinkIndex]),
				learnt: r.Protocol == unix.RTPROT_RA,
			}
		}
	}
	return s, nil
}

func usable(a netlink.Addr) bool {
	bad := unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
	if a.IP.To4() == nil {
		bad |= unix.IFA_F_TEMPORARY // the same bit says secondary of an IPv4 address
	}
	return a.Flags&bad == 0
}

// worldwide are addresses that only a default route leads to. Nothing is sent there.
func worldwide() map[int]netip.Addr {
	return map[int]netip.Addr{
		unix.AF_INET:  netip.AddrFrom4([4]byte{192, 88, 99, 1}),
		unix.AF_INET6: netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x01, 15: 1}),
	}
}

// askRoute asks the kernel where an outer packet of ours would go.
func (k *kernel) askRoute(o Options, to netip.Addr) (r netlink.Route, found bool, err error) {
	routes, err := k.route.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Mark: o.FwMark})
	for _, none := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EAFNOSUPPORT, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, none) {
			return r, false, nil
		}
	}
	if err != nil {
		return r, false, fmt.Errorf("ask for the route to %s: %w", to, err)
	}
	if len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return r, false, nil
	}
	return routes[0], true, nil
}

func (s *surroundings) facts() (f mesh.HostFacts) {
	for _, a := range s.addresses() {
		if isPrivate(a) {
			f.InternalIPs = append(f.InternalIPs, a)
			continue
		}
		f.Global = append(f.Global, a)
	}
	// A global address is one by which neighbours may reach the machine too.
	f.InternalIPs = s.bestFirst(append(f.InternalIPs, f.Global...))
	f.Links = s.prefixes()
	return f
}

// addresses are those that others may know, best first.
func (s *surroundings) addresses() (out []netip.Addr) {
	for _, l := range s.links {
		if a := l.address.Addr(); l.usable && a.IsGlobalUnicast() && !s.isLocal(l.link) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return s.bestFirst(out)
}

// bestFirst sorts: what the default route takes, then private before global, then IPv4 before
// IPv6, then as the machine has them.
func (s *surroundings) bestFirst(addrs []netip.Addr) []netip.Addr {
	rank := func(a netip.Addr) (n int) {
		if s.defaults[familyOf(a)].source != a {
			n += 4
		}
		if !isPrivate(a) {
			n += 2
		}
		if a.Is6() {
			n++
		}
		return n
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return rank(a) - rank(b) })
	return addrs
}

// localLinks are those of containers and of overlays, by how their names begin: no address on
// them is one by which other machines reach this one.
var localLinks = []string{
	"docker", "br-", "podman", "cni", "flannel", "kube-", "cali", "vxlan.calico", "tunl0", "cilium_", "lxc", "lxdbr",
	"veth", "virbr", "weave", "nodelocaldns", "stillwire", "kilo", "wg", "tailscale",
}

func (s *surroundings) isLocal(link string) bool {
	return link == "lo" || slices.ContainsFunc(localLinks, func(begin string) bool { return strings.HasPrefix(link, begin) })
}

// prefixes are those of all links but the loopback, ours, and the one that kube-proxy hangs
// service addresses on.
func (s *surroundings) prefixes() (out []netip.Prefix) {
	for _, l := range s.links {
		skip := l.link == "lo" || l.link == "kube-ipvs0"
		if p := l.address.Masked(); !skip && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePrefixes)
	return out
}

// comparePrefixes puts IPv4 first, as everything of the mesh does.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().BitLen()-b.Addr().BitLen(), a.Addr().Compare(b.Addr()), a.Bits()-b.Bits())
}

// gatewayLink finds the link that a gateway is on. When none of the links has its prefix, it is
// taken to be on that of the default route.
func (s *surroundings) gatewayLink(gateway netip.Addr) (link string, onLink, found bool) {
	longest := -1
	for _, l := range s.links {
		if l.address.Contains(gateway) && l.address.Bits() > longest {
			link, longest = l.link, l.address.Bits()
		}
	}
	if longest >= 0 {
		return link, false, true
	}
	d, found := s.defaults[familyOf(gateway)]
	return d.link, true, found
}

// isPrivate reports whether an address means something else elsewhere: RFC 1918, RFC 6598 of
// carriers, RFC 2544 of benchmarks, RFC 4193.
func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || a.Is4() && (carrierNAT().Contains(a) || benchmark().Contains(a))
}

func carrierNAT() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) }
func benchmark() netip.Prefix  { return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18}), 15) }
