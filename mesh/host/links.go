//go:build linux

package host

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/stillwire/stillwire/mesh"
)

// linkState is the TUN as the kernel has it, or as it shall be.
type linkState struct {
	index int // 0: it is not there
	kind  string
	mtu   int
	up    bool
}

const (
	kindTUN = "tuntap"
	tunnel  = "interface" // the field of a problem, and what a step provides
)

func (k *kernel) readLink(name string) (linkState, error) {
	link, err := k.route.LinkByName(name)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return linkState{}, nil
	}
	if err != nil {
		return linkState{}, fmt.Errorf("read link %s: %w", name, err)
	}
	a := link.Attrs()
	return linkState{index: a.Index, kind: kindOf(link), mtu: a.MTU, up: a.Flags&net.FlagUp != 0}, nil
}

func kindOf(link netlink.Link) string {
	if t, ok := link.(*netlink.Tuntap); ok && t.Mode != netlink.TUNTAP_MODE_TUN {
		return "tap"
	}
	return link.Type()
}

func (h *Host) linkSteps(have, want linkState) (steps []step) {
	name := h.opt.Interface
	if have.index != 0 && have.kind != kindTUN {
		return []step{failing(tunnel, h.opt.notTUN(have.kind))}
	}
	if have.index == 0 {
		steps = append(steps, step{changes: []mesh.HostChange{{What: "link", Name: name, New: "tun"}}, field: tunnel, provides: tunnel, do: func(*kernel) error { return h.makeTUN() }})
	}
	return append(steps, adjust(name, have, want)...)
}

// adjust sets what of a link may differ. It works on one that is yet to be made.
func adjust(name string, have, want linkState) (steps []step) {
	change := func(old, new string) []mesh.HostChange {
		return []mesh.HostChange{{What: "link", Name: name, Old: old, New: new}}
	}
	if have.mtu != want.mtu {
		steps = append(steps, step{
			changes: change(mtuText(have.mtu), mtuText(want.mtu)), field: "mtu", needs: neededBy(want),
			do: func(k *kernel) error {
				return k.changeLink(name, func(l netlink.Link) error { return k.route.LinkSetMTU(l, want.mtu) })
			},
		})
	}
	if !have.up {
		steps = append(steps, step{
			changes: change("down", "up"), field: tunnel, needs: neededBy(want),
			do: func(k *kernel) error { return k.changeLink(name, k.route.LinkSetUp) },
		})
	}
	return steps
}

// neededBy is what must not have failed for a link to be there.
func neededBy(l linkState) []string {
	if isCarrier(l.kind) {
		return []string{encapsulation}
	}
	return []string{tunnel}
}

func mtuText(mtu int) string {
	if mtu == 0 {
		return ""
	}
	return "mtu " + strconv.Itoa(mtu)
}

func (o Options) notTUN(kind string) error {
	return &problemError{mesh.HostConflict,
		fmt.Sprintf("the link %s is of kind %q and not a TUN", o.Interface, kind),
		"remove it, or choose another interface"}
}

func (k *kernel) changeLink(name string, change func(netlink.Link) error) error {
	link, err := k.route.LinkByName(name)
	if err == nil {
		err = change(link)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}
