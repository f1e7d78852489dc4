//go:build linux

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// addressSteps leaves link-local addresses alone, which the kernel makes.
func addressSteps(link string, have, want []netip.Prefix) (add, remove []step) {
	for _, p := range want {
		if !slices.Contains(have, p) {
			add = append(add, step{
				changes: []mesh.HostChange{{What: "address", Name: p.String(), New: "dev " + link}}, field: "address", needs: []string{tunnel},
				do: func(k *kernel) error { return k.addAddress(link, p) },
			})
		}
	}
	for _, p := range have {
		if !slices.Contains(want, p) {
			remove = append(remove, step{
				changes: []mesh.HostChange{{What: "address", Name: p.String(), Old: "dev " + link}}, field: "address", needs: []string{tunnel},
				do: func(k *kernel) error { return k.removeAddress(link, p) },
			})
		}
	}
	return add, remove
}

func (k *kernel) readAddresses(link linkState) (prefixes []netip.Prefix, err error) {
	if link.index == 0 || link.kind != kindTUN {
		return nil, nil
	}
	on := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: link.index}}
	list, err := dumped(func() ([]netlink.Addr, error) { return k.route.AddrList(on, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("read addresses: %w", err)
	}
	for _, a := range list {
		if p := prefixOf(a.IPNet, 0); !p.Addr().IsLinkLocalUnicast() {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, nil
}

// addAddress adds one that may be used at once, without a route of its own: routes are ours to
// make. Nobody else is on a TUN to have the same address.
func (k *kernel) addAddress(link string, p netip.Prefix) error {
	flags := unix.IFA_F_NOPREFIXROUTE
	if p.Addr().Is6() {
		flags |= unix.IFA_F_NODAD
	}
	return k.changeLink(link, func(l netlink.Link) error {
		err := k.route.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p), Flags: flags})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", p, err)
		}
		return nil
	})
}

func (k *kernel) removeAddress(link string, p netip.Prefix) error {
	return k.changeLink(link, func(l netlink.Link) error {
		err := k.route.AddrDel(l, &netlink.Addr{IPNet: ipNet(p)})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s: %w", p, err)
		}
		return nil
	})
}
