//go:build linux

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	nfnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Where things are in a message about a route, without its first header.
const (
	sizeofRtMsg = 12
	rtDstLen    = 1
	rtProtocol  = 5
	rtType      = 7
	rtFlags     = 8
)

// readRoutes returns the routes of our protocol in our tables. The library of the other calls
// knows no encapsulation in IP.
func (k *kernel) readRoutes(o Options, names map[int]string) (routes []route, err error) {
	c, err := nfnetlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	defer c.Close()
	// With strict checks the kernel sends what is asked for alone, and not a million routes of
	// the machine. Before 4.20 it has none, and what comes is filtered again.
	c.SetOption(nfnetlink.GetStrictCheck, true)
	for _, family := range families() {
		for in := range tables {
			some, err := readRouteTable(c, o, family, in, names)
			if err != nil {
				return nil, err
			}
			routes = append(routes, some...)
		}
	}
	return routes, nil
}

func readRouteTable(c *nfnetlink.Conn, o Options, family int, in table, names map[int]string) (routes []route, err error) {
	number := o.table(in)
	messages, err := dumped(func() ([]nfnetlink.Message, error) { return dumpRoutes(c, o, family, number) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil // no such table yet, or no such family
	}
	if err != nil {
		return nil, fmt.Errorf("read routes of table %d: %w", number, err)
	}
	for _, m := range messages {
		if r, found := readRoute(m.Data, family, names); found == number && int(m.Data[rtProtocol]) == o.Protocol {
			r.In = in
			routes = append(routes, r)
		}
	}
	return routes, nil
}

func dumpRoutes(c *nfnetlink.Conn, o Options, family, in int) ([]nfnetlink.Message, error) {
	body := make([]byte, sizeofRtMsg)
	body[0], body[rtProtocol] = byte(family), byte(o.Protocol)
	table, err := nfnetlink.MarshalAttributes([]nfnetlink.Attribute{{Type: unix.RTA_TABLE, Data: native32(uint32(in))}})
	if err != nil {
		return nil, err
	}
	messages, err := c.Execute(nfnetlink.Message{
		Header: nfnetlink.Header{Type: unix.RTM_GETROUTE, Flags: nfnetlink.Request | nfnetlink.Dump},
		Data:   append(body, table...),
	})
	for _, m := range messages {
		if err == nil && m.Header.Flags&nfnetlink.DumpInterrupted != 0 {
			err = errInterrupted
		}
	}
	return messages, err
}

// readRoute returns a route and the table that it is in; 0: it cannot be read.
func readRoute(m []byte, family int, names map[int]string) (r route, table int) {
	if len(m) < sizeofRtMsg {
		return r, 0
	}
	r.Dst = prefixOf(nil, family)
	var whole route
	attributes(m, sizeofRtMsg, func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_DST:
			a, _ := netip.AddrFromSlice(value)
			r.Dst = netip.PrefixFrom(a, int(m[rtDstLen]))
		case unix.RTA_TABLE:
			table = int(number(value))
		case unix.RTA_PRIORITY:
			r.Metric = int(number(value))
		default:
			whole.read(kind, value, names)
		}
	})
	switch m[rtType] {
	case unix.RTN_UNREACHABLE:
		r.Unreachable = true
	case unix.RTN_THROW:
		r.Throw = true
	default:
		whole.Dst, whole.Metric = r.Dst, r.Metric
		whole.OnLink = binary.NativeEndian.Uint32(m[rtFlags:])&unix.RTNH_F_ONLINK != 0
		r = whole
	}
	return r, table
}

// read takes up what says where packets of the route go.
func (r *route) read(kind uint16, value []byte, names map[int]string) {
	switch kind {
	case unix.RTA_OIF:
		r.Dev = names[int(number(value))]
	case unix.RTA_GATEWAY:
		r.Gateway, _ = netip.AddrFromSlice(value)
	case unix.RTA_VIA: // a gateway of the other family, behind two bytes that say which
		r.Gateway, _ = netip.AddrFromSlice(value[min(2, len(value)):])
	case unix.RTA_PREFSRC:
		r.Src, _ = netip.AddrFromSlice(value)
	case unix.RTA_METRICS:
		attributes(value, 0, func(kind uint16, value []byte) {
			if kind == unix.RTAX_MTU {
				r.MTU = int(number(value))
			}
		})
	case unix.RTA_ENCAP:
		attributes(value, 0, func(kind uint16, value []byte) {
			if kind == nl.LWTUNNEL_IP6_DST { // the same number in IPv4
				r.Outer, _ = netip.AddrFromSlice(value)
			}
		})
	}
}

// number is one of the machine's byte order; 0 where it is none.
func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}
