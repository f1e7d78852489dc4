//go:build linux

package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// wanted is what the machine shall be: a plan in the words of the kernel.
type wanted struct {
	link      linkState
	encap     linkState // kind "": none
	addresses []netip.Prefix
	routes    []wantedRoute
	rules     []rule
	firewall  ruleset
	settings  []setting
}

// want turns a plan into a wanted machine. It does no I/O.
func (o Options) want(plan mesh.HostPlan, around *surroundings) (w wanted, problems []mesh.Problem) {
	if !around.ipv6 {
		var lost bool
		if plan, lost = without6(plan); lost {
			problems = append(problems, o.named("ipv6", "", mesh.Unsupported,
				"the kernel has no IPv6; the mesh goes on without", "boot without ipv6.disable=1"))
		}
	}
	w.link = linkState{kind: kindTUN, up: true, mtu: o.mtu(plan, around)}
	w.addresses = plan.Addresses
	w.routes, problems = o.wantRoutes(plan, around, problems)
	w.encap = o.wantEncapLink(w.routes, around)
	w.rules = o.wantRules(unix.AF_INET, hasDefault(plan, unix.AF_INET))
	if around.ipv6 {
		w.rules = append(w.rules, o.wantRules(unix.AF_INET6, hasDefault(plan, unix.AF_INET6))...)
	}
	w.firewall = o.wantFirewall(plan, around)
	w.settings = o.wantSettings(plan, around)
	return w, problems
}

func (o Options) named(field, value string, reason mesh.Reason, detail, remedy string) mesh.Problem {
	return mesh.Problem{
		Subject: mesh.Subject{Kind: mesh.KindHost, Name: o.Interface},
		Field:   field, Value: value, Reason: reason, Detail: detail, Remedy: remedy,
	}
}

// What WireGuard and UDP add to a packet in IPv4 and IPv6, bytes.
const (
	overhead4 = 60
	overhead6 = 80
	leastMTU4 = 576
	leastMTU6 = 1280 // RFC 8200 section 5: with less the kernel takes IPv6 from the link
)

// mtu is the largest inner packet that fits any path to the world: each path has its link and
// its overhead.
func (o Options) mtu(plan mesh.HostPlan, around *surroundings) int {
	if fixed := cmp.Or(o.MTU, plan.MTU); fixed != 0 {
		return fixed
	}
	mtu := 0
	for family, overhead := range map[int]int{unix.AF_INET: overhead4, unix.AF_INET6: overhead6} {
		if d, found := around.defaults[family]; found && d.mtu > 0 && (mtu == 0 || d.mtu-overhead < mtu) {
			mtu = d.mtu - overhead
		}
	}
	least := leastMTU4
	if slices.ContainsFunc(plan.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		least = leastMTU6
	}
	return max(cmp.Or(mtu, startMTU), least)
}

func hasDefault(plan mesh.HostPlan, family int) bool {
	return slices.ContainsFunc(plan.Routes, func(r mesh.Route) bool {
		return r.Via == mesh.ViaTunnel && r.Dst.Bits() == 0 && familyOf(r.Dst.Addr()) == family
	})
}

// wantRoutes has a route beneath every remote prefix, so that what has no way goes nowhere.
func (o Options) wantRoutes(plan mesh.HostPlan, around *surroundings, problems []mesh.Problem) ([]wantedRoute, []mesh.Problem) {
	var routes []wantedRoute
	below := make(map[netip.Prefix]bool)
	beneath := func(dst netip.Prefix, cause string) {
		if !below[dst] {
			below[dst] = true
			routes = append(routes, wantedRoute{route: route{Dst: dst, Metric: metricBelow, Unreachable: true}, cause: cause})
		}
	}
	for _, r := range plan.Routes {
		beneath(r.Dst, r.Member)
		w, p := o.wantRoute(r, around)
		if p != nil {
			problems = append(problems, *p)
			continue
		}
		routes = append(routes, w)
	}
	for _, dst := range slices.Concat(plan.Firewall.Tunnelled, plan.Firewall.Reserved) {
		beneath(dst, "")
	}
	routes = append(routes, wantPassed(plan.Firewall, below)...)
	routes = append(routes, wantLast(plan)...)
	return o.wantForwarded(routes, plan, around, problems)
}

// wantForwarded is a table of its own, with a route beneath each as elsewhere.
func (o Options) wantForwarded(routes []wantedRoute, plan mesh.HostPlan, around *surroundings, problems []mesh.Problem) ([]wantedRoute, []mesh.Problem) {
	for _, r := range plan.Forwarded {
		routes = append(routes, wantedRoute{route: route{Dst: r.Dst, In: forwarded, Metric: metricBelow, Unreachable: true}, cause: r.Member})
		w, p := o.wantRoute(r, around)
		if p != nil {
			problems = append(problems, *p)
			continue
		}
		w.In = forwarded
		routes = append(routes, w)
	}
	return routes, problems
}

// wantPassed lets through to the main table what is local and lies within a route beneath.
func wantPassed(f mesh.Firewall, below map[netip.Prefix]bool) (routes []wantedRoute) {
	for _, dst := range f.Local {
		for outer := range below {
			if outer.Bits() <= dst.Bits() && outer.Contains(dst.Addr()) {
				routes = append(routes, wantedRoute{route: route{Dst: dst, Metric: metricOf(dst), Throw: true}})
				break
			}
		}
	}
	return routes
}

// wantLast keeps in what is for the node's own pods and mesh addresses, or else for a range of
// the mesh, while no link or route of the machine leads there: a bridge comes with the first pod,
// and goes down with the last. An extra prefix may well be behind the default route.
func wantLast(plan mesh.HostPlan) (routes []wantedRoute) {
	for _, dst := range outermost(slices.Concat(plan.Firewall.Reserved, plan.Firewall.Pods, plan.Addresses)) {
		if dst.Bits() > 0 {
			routes = append(routes, wantedRoute{route: route{Dst: dst, In: last, Metric: metricBelow, Unreachable: true}})
		}
	}
	return routes
}

func (o Options) wantRoute(r mesh.Route, around *surroundings) (wantedRoute, *mesh.Problem) {
	w := wantedRoute{cause: r.Member}
	w.route = route{Dst: r.Dst, Metric: metricOf(r.Dst), Src: r.Src, MTU: r.MTU}
	switch r.Via {
	case mesh.ViaTunnel:
		w.Dev, w.needs = o.Interface, []string{tunnel, firewall}
	case mesh.ViaNative:
		if r.Gateway.Is4() && r.Dst.Addr().Is6() {
			p := o.named("route", r.Dst.String(), mesh.Unsupported,
				fmt.Sprintf("Linux has no route of IPv6 by way of the IPv4 address %s of %s; the prefix is unreachable", r.Gateway, r.Member),
				"give the nodes internal IPs of both families, or encapsulate")
			return w, &p
		}
		var found bool
		w.Gateway = r.Gateway
		if w.Dev, w.OnLink, found = around.gatewayLink(r.Gateway); !found {
			p := o.named("route", r.Dst.String(), mesh.HostConflict,
				fmt.Sprintf("no link of this machine leads to the gateway %s of %s; the prefix is unreachable", r.Gateway, r.Member),
				"give the machine a route to it, or the node another internal IP")
			return w, &p
		}
	case mesh.ViaEncapsulated:
		w.Dev, w.Outer, w.needs = o.encapLink(), r.Gateway, []string{encapsulation}
		if c := o.carrier(); c.only4 && (r.Dst.Addr().Is6() || r.Gateway.Is6()) {
			p := o.named("route", r.Dst.String(), mesh.Unsupported,
				fmt.Sprintf("%s carries IPv4 in IPv4 alone; the prefix of %s is unreachable", o.Encapsulation, r.Member), "encapsulate in vxlan")
			return w, &p
		}
	default:
		p := o.named("route", r.Dst.String(), mesh.Unsupported, fmt.Sprintf("no way called %q; the prefix is unreachable", r.Via), "")
		return w, &p
	}
	return w, nil
}

// without6 takes all of IPv6 out of a plan.
func without6(plan mesh.HostPlan) (mesh.HostPlan, bool) {
	before := len(plan.Addresses) + len(plan.Routes)
	plan.Addresses = only4(plan.Addresses)
	is6 := func(r mesh.Route) bool { return r.Dst.Addr().Is6() }
	plan.Routes = slices.DeleteFunc(slices.Clone(plan.Routes), is6)
	plan.Forwarded = slices.DeleteFunc(slices.Clone(plan.Forwarded), is6)
	f := &plan.Firewall
	for _, set := range []*[]netip.Prefix{&f.Reserved, &f.Tunnelled, &f.Native, &f.Local, &f.Behind, &f.Pods, &f.Inside, &f.Neighbours, &f.Outer} {
		*set = only4(*set)
	}
	return plan, len(plan.Addresses)+len(plan.Routes) != before
}

func only4(prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// owns reports whether a link is one that we make.
func (o Options) owns(link string) bool { return link == o.Interface || link == o.encapLink() }
