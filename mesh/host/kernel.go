//go:build linux

package host

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/google/nftables"
	nfnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernel is the sockets of one call.
type kernel struct {
	route *netlink.Handle
	nft   *nftables.Conn  // writes, and reads most
	dump  *nfnetlink.Conn // reads rules of the firewall; nil: not yet
	index map[string]int  // of links that routes were set on
}

// transactionBuffer holds the largest transaction: 10,000 prefixes take 2 MB.
const transactionBuffer = 32 << 20

func openKernel() (*kernel, error) {
	route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	k := &kernel{route: route, index: make(map[string]int)}
	k.nft, err = nftables.New(nftables.WithSockOptions(func(c *nfnetlink.Conn) error {
		return c.SetWriteBuffer(transactionBuffer)
	}))
	if err != nil {
		k.close()
		return nil, fmt.Errorf("open nftables netlink: %w", err)
	}
	return k, nil
}

func (k *kernel) close() {
	k.route.Close()
	if k.dump != nil {
		k.dump.Close()
	}
}

// indexOf is the index of a link. It asks once: links are made before routes.
func (k *kernel) indexOf(name string) (int, error) {
	if i, known := k.index[name]; known {
		return i, nil
	}
	link, err := k.route.LinkByName(name)
	if err != nil {
		return 0, err
	}
	k.index[name] = link.Attrs().Index
	return k.index[name], nil
}

// machine is what is ours on the machine, but for the firewall.
type machine struct {
	link      linkState
	encap     linkState
	addresses []netip.Prefix
	routes    []route
	rules     []rule
}

func (k *kernel) observe(o Options, names map[int]string) (m machine, err error) {
	if m.link, err = k.readLink(o.Interface); err != nil {
		return m, err
	}
	if m.encap, err = k.readLink(o.encapLink()); err != nil {
		return m, err
	}
	if m.addresses, err = k.readAddresses(m.link); err != nil {
		return m, err
	}
	// The names may be of a time before the TUN was made.
	names = maps.Clone(names)
	names[m.link.index], names[m.encap.index] = o.Interface, o.encapLink()
	if m.routes, err = k.readRoutes(o, names); err != nil {
		return m, err
	}
	m.rules, err = k.readRules(o)
	return m, err
}

// dumps is how often a dump is begun anew that changes interrupted.
const dumps = 5

// errInterrupted is what a dump is that changes came in between.
var errInterrupted = netlink.ErrDumpInterrupted

// dumped reads again when the kernel says that the answer is of two minds. After some tries it
// takes what came: on a machine that changes all the time a later look puts it right.
func dumped[T any](read func() ([]T, error)) (all []T, err error) {
	for range dumps {
		all, err = read()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

// prefixOf is the netip form of what the netlink library uses; nil is the default route.
func prefixOf(n *net.IPNet, family int) netip.Prefix {
	if n == nil {
		if family == unix.AF_INET6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	bits, size := n.Mask.Size()
	a, _ := netip.AddrFromSlice(n.IP)
	if size == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func families() []int { return []int{unix.AF_INET, unix.AF_INET6} }

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
