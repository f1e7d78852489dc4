//go:build linux

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// One link carries all that is encapsulated: it takes the outer destination from the route
// (lightweight tunnels of the kernel), so that there is neither a forwarding database nor a
// neighbour for each node.
//
//	10.2.3.0/24 encap ip id 7107 dst 192.0.2.3 dev stillwire0-e
//
// VXLAN is in its form without Ethernet inside (draft-ietf-nvo3-vxlan-gpe), and so is Geneve.

// carrier is one way to encapsulate, as the kernel wants it.
type carrier struct {
	kind     string
	protocol byte   // of the outer packets
	port     uint16 // of the outer packets; 0: none
	overhead int    // bytes, without the outer IP header
	only4    bool   // carries IPv4 alone
	data     func(*nl.RtAttr)
}

// What golang.org/x/sys does not name, of linux/if_link.h.
const (
	vxlanLearning, vxlanPort, vxlanMetadata, vxlanGPE = 7, 15, 25, 27
	genevePort, geneveMetadata, geneveInherit         = 5, 6, 14
	iptunMetadata                                     = 19
)

// Ports by IANA.
const (
	portGPE    = 4790
	portGeneve = 6081
)

// tunnelChecksum is TUNNEL_CSUM of linux/if_tunnel.h.
const tunnelChecksum = 1

// tunnelID tells our packets from those of others, in the field for a network's number.
const tunnelID = 7107

func (o Options) carrier() carrier {
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	switch o.Encapsulation {
	case mesh.Geneve:
		return carrier{kind: "geneve", protocol: unix.IPPROTO_UDP, port: portGeneve, overhead: 16, data: func(d *nl.RtAttr) {
			d.AddRtAttr(genevePort, port(portGeneve))
			d.AddRtAttr(geneveMetadata, nil)
			d.AddRtAttr(geneveInherit, nil)
		}}
	case mesh.IPIP:
		return carrier{kind: "ipip", protocol: unix.IPPROTO_IPIP, only4: true, data: func(d *nl.RtAttr) { d.AddRtAttr(iptunMetadata, nil) }}
	}
	return carrier{kind: "vxlan", protocol: unix.IPPROTO_UDP, port: portGPE, overhead: 16, data: func(d *nl.RtAttr) {
		d.AddRtAttr(vxlanPort, port(portGPE))
		d.AddRtAttr(vxlanLearning, []byte{0})
		d.AddRtAttr(vxlanMetadata, []byte{1})
		d.AddRtAttr(vxlanGPE, nil)
	}}
}

// encapLink is the name of the link beside the TUN.
func (o Options) encapLink() string { return o.Interface[:min(len(o.Interface), nameLimit-2)] + "-e" }

// wantEncapLink is no link where no route needs one.
func (o Options) wantEncapLink(routes []wantedRoute, around *surroundings) linkState {
	if !slices.ContainsFunc(routes, func(r wantedRoute) bool { return r.Outer.IsValid() }) {
		return linkState{}
	}
	const header4, header6 = 20, 40
	c, mtu := o.carrier(), 0
	for family, header := range map[int]int{unix.AF_INET: header4, unix.AF_INET6: header6} {
		if d, found := around.defaults[family]; found && (mtu == 0 || d.mtu-header-c.overhead < mtu) {
			mtu = d.mtu - header - c.overhead
		}
	}
	if mtu == 0 {
		mtu = 1500 - header6 - c.overhead
	}
	return linkState{kind: c.kind, mtu: max(mtu, leastMTU6), up: true}
}

const encapsulation = "encapsulation" // the field of a problem, and what a step provides

func (o Options) encapSteps(have, want linkState) (add, remove []step) {
	name := o.encapLink()
	drop := step{changes: []mesh.HostChange{{What: "link", Name: name, Old: have.kind}}, field: encapsulation,
		do: func(k *kernel) error { return k.removeLink(name) }}
	if want.kind == "" {
		if have.index != 0 && isCarrier(have.kind) {
			remove = append(remove, drop)
		}
		return nil, remove
	}
	if have.index != 0 && !isCarrier(have.kind) {
		conflict := &problemError{mesh.HostConflict, fmt.Sprintf("the link %s is of kind %q", name, have.kind), "remove it, or choose another interface"}
		return []step{failing(encapsulation, conflict)}, nil
	}
	if have.index != 0 && have.kind != want.kind {
		add = append(add, drop)
		have = linkState{}
	}
	if have.index == 0 {
		add = append(add, step{changes: []mesh.HostChange{{What: "link", Name: name, New: want.kind}}, field: encapsulation, provides: encapsulation,
			do: func(k *kernel) error { return k.addCarrier(o, want.mtu) }})
	}
	return append(add, adjust(name, have, want)...), nil
}

func isCarrier(kind string) bool { return slices.Contains([]string{"vxlan", "geneve", "ipip"}, kind) }

func (k *kernel) addCarrier(o Options, mtu int) error {
	c := o.carrier()
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(o.encapLink())))
	req.AddData(nl.NewRtAttr(unix.IFLA_MTU, native32(uint32(mtu))))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, []byte(c.kind))
	c.data(info.AddRtAttr(nl.IFLA_INFO_DATA, nil))
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("make link %s of kind %s: %w", o.encapLink(), c.kind, err)
	}
	// Without: an address that is not one of the plan's, and of no use.
	k.changeLink(o.encapLink(), func(l netlink.Link) error { return k.route.LinkSetIP6AddrGenMode(l, addrGenNone) })
	return nil
}

func (k *kernel) removeLink(name string) error {
	if err := k.changeLink(name, k.route.LinkDel); !errors.As(err, new(netlink.LinkNotFoundError)) {
		return err
	}
	return nil
}

// outer is the outer destination of a route. It meets netlink.Encap.
type outer struct{ netip.Addr }

// Type is IP or IPv6.
func (e outer) Type() int {
	if e.Is4() {
		return nl.LWTUNNEL_ENCAP_IP
	}
	return nl.LWTUNNEL_ENCAP_IP6
}

// Decode is not needed: routes are read in routedump.go.
func (e outer) Decode([]byte) error { return errors.ErrUnsupported }

// Encode returns the attributes, whose numbers are the same in IPv4.
func (e outer) Encode() ([]byte, error) {
	id := nl.NewRtAttr(nl.LWTUNNEL_IP6_ID, binary.BigEndian.AppendUint64(nil, tunnelID))
	dst := nl.NewRtAttr(nl.LWTUNNEL_IP6_DST, e.AsSlice())
	b := append(id.Serialize(), dst.Serialize()...)
	if e.Is6() { // which drops what has no checksum (RFC 8200 section 8.1)
		b = append(b, nl.NewRtAttr(nl.LWTUNNEL_IP6_FLAGS, binary.BigEndian.AppendUint16(nil, tunnelChecksum)).Serialize()...)
	}
	return b, nil
}

// Equal compares.
func (e outer) Equal(other netlink.Encap) bool { return e == other }
