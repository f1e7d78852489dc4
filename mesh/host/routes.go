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

// route is one route of our tables. The kernel knows it by table, destination and metric: another
// one of all three takes its place at once.
type route struct {
	Dst         netip.Prefix
	In          table
	Metric      int
	Unreachable bool // all below is then of no meaning
	Throw       bool // to the next table; all below is then of no meaning
	Dev         string
	Gateway     netip.Addr
	Outer       netip.Addr // of what is encapsulated: the outer destination
	OnLink      bool
	Src         netip.Addr
	MTU         int
}

// table is one of our routing tables.
type table int

const (
	remote    table = iota // the mesh
	last                   // what is unreachable when the main table has no more than a default route for it
	forwarded              // for what carries the cross mark alone
	tables
)

// Metrics. IPv6 makes 1024 of none. The highest that fits an int of any machine is beneath all.
const (
	metric4     = 0
	metric6     = 1024
	metricBelow = 1<<31 - 1
)

func metricOf(dst netip.Prefix) int {
	if dst.Addr().Is4() {
		return metric4
	}
	return metric6
}

type routeKey struct {
	dst    netip.Prefix
	in     table
	metric int
}

func (r route) key() routeKey { return routeKey{r.Dst, r.In, r.Metric} }

func (r route) String() string {
	if r.Unreachable {
		return "unreachable"
	}
	if r.Throw {
		return "throw"
	}
	text := ""
	if r.Gateway.IsValid() {
		text = "via " + r.Gateway.String() + " "
	}
	if r.Outer.IsValid() {
		text += "encap dst " + r.Outer.String() + " "
	}
	text += "dev " + r.Dev
	if r.OnLink {
		text += " onlink"
	}
	if r.Src.IsValid() {
		text += " src " + r.Src.String()
	}
	if r.MTU != 0 {
		text += fmt.Sprintf(" mtu %d", r.MTU)
	}
	return text
}

// wantedRoute is a route and why it is there.
type wantedRoute struct {
	route
	cause string
	needs []string // as in step
}

// diffRoutes returns what to set, in the order wanted, and what to remove. Routes beneath come
// before those above them.
func diffRoutes(have []route, want []wantedRoute) (set []wantedRoute, replaced map[routeKey]route, remove []route) {
	present := make(map[routeKey]route, len(have))
	for _, r := range have {
		present[r.key()] = r
	}
	replaced = make(map[routeKey]route)
	for _, w := range want {
		h, found := present[w.key()]
		delete(present, w.key())
		if found && h == w.route {
			continue
		}
		if found {
			replaced[w.key()] = h
		}
		set = append(set, w)
	}
	for _, r := range have {
		if _, left := present[r.key()]; left {
			remove = append(remove, r)
		}
	}
	slices.SortStableFunc(set, func(a, b wantedRoute) int { return b.Metric - a.Metric })
	slices.SortStableFunc(remove, func(a, b route) int { return a.Metric - b.Metric })
	return set, replaced, remove
}

func routeSteps(o Options, have []route, want []wantedRoute) (add, remove []step) {
	set, replaced, gone := diffRoutes(have, want)
	for _, w := range set {
		change := mesh.HostChange{What: "route", Name: name(w.route), New: w.String(), Cause: w.cause}
		if old, found := replaced[w.key()]; found {
			change.Old = old.String()
		}
		add = append(add, step{
			changes: []mesh.HostChange{change}, needs: w.needs, field: "route",
			do: func(k *kernel) error { return k.setRoute(o, w.route) },
		})
	}
	for _, r := range gone {
		remove = append(remove, step{
			changes: []mesh.HostChange{{What: "route", Name: name(r), Old: r.String()}}, field: "route",
			do: func(k *kernel) error { return k.removeRoute(o, r) },
		})
	}
	return add, remove
}

// name tells the route beneath from that above.
func name(r route) string {
	switch {
	case r.In == last:
		return r.Dst.String() + " at last"
	case r.In == forwarded && r.Metric == metricBelow:
		return r.Dst.String() + " forwarded, beneath"
	case r.In == forwarded:
		return r.Dst.String() + " forwarded"
	case r.Metric == metricBelow:
		return r.Dst.String() + " beneath"
	}
	return r.Dst.String()
}

func (k *kernel) toKernel(o Options, r route) (*netlink.Route, error) {
	out := &netlink.Route{
		Dst: ipNet(r.Dst), Priority: r.Metric, Table: o.table(r.In), Protocol: netlink.RouteProtocol(o.Protocol),
		Family: familyOf(r.Dst.Addr()), Type: unix.RTN_UNICAST,
	}
	if r.Unreachable {
		out.Type = unix.RTN_UNREACHABLE
		return out, nil
	}
	if r.Throw {
		out.Type = unix.RTN_THROW
		return out, nil
	}
	index, err := k.indexOf(r.Dev)
	if err != nil {
		return nil, err
	}
	out.LinkIndex, out.MTU, out.Src = index, r.MTU, r.Src.AsSlice()
	switch {
	case r.Outer.IsValid():
		out.Encap = outer{r.Outer}
	case r.Gateway.IsValid() && r.Gateway.Is6() && r.Dst.Addr().Is4():
		out.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: r.Gateway.AsSlice()}
	default:
		out.Gw = r.Gateway.AsSlice()
	}
	if r.OnLink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	if !r.Gateway.IsValid() && r.Dst.Addr().Is4() {
		out.Scope = netlink.SCOPE_LINK
	}
	return out, nil
}

func (k *kernel) setRoute(o Options, r route) error {
	kr, err := k.toKernel(o, r)
	if err == nil {
		err = k.route.RouteReplace(kr)
	}
	if err != nil {
		return fmt.Errorf("route %s %s: %w", r.Dst, r, err)
	}
	return nil
}

// removeRoute names what tells the route from others: a foreign one of the same destination
// stays.
func (k *kernel) removeRoute(o Options, r route) error {
	kr := &netlink.Route{
		Dst: ipNet(r.Dst), Priority: r.Metric, Table: o.table(r.In), Protocol: netlink.RouteProtocol(o.Protocol),
		Family: familyOf(r.Dst.Addr()), Scope: netlink.SCOPE_NOWHERE,
	}
	if r.Unreachable {
		kr.Type = unix.RTN_UNREACHABLE
	}
	if r.Throw {
		kr.Type = unix.RTN_THROW
	}
	err := k.route.RouteDel(kr)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route %s %s: %w", r.Dst, r, err)
	}
	return nil
}
