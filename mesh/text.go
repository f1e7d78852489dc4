package mesh

import (
	"fmt"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/stillwire/stillwire/device"
)

// String is the plan as an operator reads it: the device as a wg-quick file without secrets, the
// routes as `ip route` words them, the sets of the firewall.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# node %s in %s\n", p.Self, p.Location)
	for _, l := range p.Leaders {
		fmt.Fprintf(&b, "# %s is led by %s\n", l.Location, l.Leader)
	}
	if p.Publish.Leads != 0 {
		fmt.Fprintf(&b, "# leads with term %d\n", p.Publish.Leads)
	}
	p.writeDevice(&b)
	p.writeRoutes(&b)
	p.Host.Firewall.write(&b)
	for _, probe := range p.Probes {
		fmt.Fprintf(&b, "probe %s at %s\n", probe.Name, probe.Address)
	}
	return b.String()
}

func (p Plan) writeDevice(b *strings.Builder) {
	fmt.Fprintf(b, "\n[Interface]\nPrivateKey = (redacted)\nListenPort = %d\n", p.Device.ListenPort)
	for _, a := range p.Host.Addresses {
		fmt.Fprintf(b, "Address = %s\n", a)
	}
	if p.Host.MTU != 0 {
		fmt.Fprintf(b, "MTU = %d\n", p.Host.MTU)
	}
	for _, peer := range p.Device.Peers {
		writePeer(b, peer)
	}
}

func writePeer(b *strings.Builder, p device.PeerConfig) {
	fmt.Fprintf(b, "\n[Peer]\n# Name = %s\nPublicKey = %s\n", p.Name, p.PublicKey)
	if !p.PresharedKey.IsZero() {
		b.WriteString("PresharedKey = (redacted)\n")
	}
	if !p.Endpoint.IsZero() {
		fmt.Fprintf(b, "Endpoint = %s\n", p.Endpoint)
	}
	if p.PersistentKeepalive != 0 {
		fmt.Fprintf(b, "PersistentKeepalive = %d\n", int(p.PersistentKeepalive.Seconds()))
	}
	if len(p.AllowedIPs) > 0 {
		fmt.Fprintf(b, "AllowedIPs = %s\n", join(p.AllowedIPs))
	}
}

func (p Plan) writeRoutes(b *strings.Builder) {
	b.WriteString("\n")
	w := tabwriter.NewWriter(b, 0, 8, 1, ' ', 0)
	for _, r := range p.Host.Routes {
		fmt.Fprintf(w, "%s\t# %s\n", r, r.Member)
	}
	for _, r := range p.Host.Forwarded {
		fmt.Fprintf(w, "forwarded %s\t# %s\n", r, r.Member)
	}
	_ = w.Flush() // a strings.Builder takes everything
}

// String words the route as `ip route` does, with "tunnel" for the device.
func (r Route) String() string {
	text := r.Dst.String()
	switch r.Via {
	case ViaTunnel:
		text += " dev tunnel"
	case ViaNative:
		text += " via " + r.Gateway.String()
	case ViaEncapsulated:
		text += " encap via " + r.Gateway.String()
	}
	if r.Src.IsValid() {
		text += " src " + r.Src.String()
	}
	if r.MTU != 0 {
		text += fmt.Sprintf(" mtu %d", r.MTU)
	}
	return text
}

func (f Firewall) write(b *strings.Builder) {
	b.WriteString("\n")
	for _, set := range f.Sets() {
		if len(set.Prefixes) > 0 {
			fmt.Fprintf(b, "set %s { %s }\n", set.Name, join(set.Prefixes))
		}
	}
}

// Set is one set of the firewall.
type Set struct {
	Name     string
	Prefixes []netip.Prefix
}

// Sets are all sets, by the names they have on a host.
func (f Firewall) Sets() []Set {
	return []Set{
		{"reserved", f.Reserved},
		{"tunnelled", f.Tunnelled},
		{"native", f.Native},
		{"local", f.Local},
		{"behind", f.Behind},
		{"pods", f.Pods},
		{"inside", f.Inside},
		{"neighbours", f.Neighbours},
		{"outer", f.Outer},
	}
}

func join(list []netip.Prefix) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return strings.Join(words, ", ")
}
