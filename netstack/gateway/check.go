package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

// Check reads what a gateway would read and opens nothing. The text says, for people, what
// would be done, what is read and not obeyed, and what may surprise. The error, as Load's,
// is what a gateway would refuse; the text then shows as much as could be read.
func Check(s Sources) (string, error) {
	l := load(s, newReads())
	var p printer
	for _, t := range l.spec.Tunnels {
		p.tunnel(t)
	}
	if len(l.spec.Services) > 0 {
		p.line("services")
	}
	for _, s := range l.spec.Services {
		p.line("  %s %s (%s)", s, s.summary(), s.Source)
	}
	if a := l.spec.Admin; !a.Listen.IsZero() {
		p.line("admin %s (%s)", a.Listen, a.Source)
	}
	p.notices("ignored", l.spec.Ignored)
	p.notices("warnings", l.spec.Warnings)
	return p.String(), errors.Join(l.errs...)
}

// printer writes lines for people.
type printer struct{ strings.Builder }

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *printer) notices(title string, list []device.Notice) {
	if len(list) > 0 {
		p.line("%s", title)
	}
	for _, n := range list {
		p.line("  %s", n)
	}
}

func (p *printer) tunnel(t Tunnel) {
	config := t.File.Config
	p.line("tunnel %s (%s)", t.Name, t.File.Path)
	p.line("  public key   %s", publicKey(t))
	p.line("  addresses    %s", cmp.Or(join(t.File.Addresses), "none"))
	dns := cmp.Or(t.dns(), "none: names cannot be resolved through this tunnel")
	if t.HostDNS {
		dns = "this machine's"
	}
	p.line("  dns          %s", dns)
	p.line("  listen port  %s", orAny(config.ListenPort))
	p.line("  mtu          %s", mtu(t))
	for _, peer := range config.Peers {
		p.peer(peer)
	}
}

func (p *printer) peer(c device.PeerConfig) {
	p.line("  peer         %s%s (%s)", c.PublicKey, spaced(c.Name), c.Source)
	p.line("    endpoint      %s", cmp.Or(c.Endpoint.String(), "none: the peer must speak first"))
	p.line("    allowed ips   %s", cmp.Or(join(c.AllowedIPs), "none"))
	if c.PersistentKeepalive > 0 {
		p.line("    keepalive     every %s", c.PersistentKeepalive.Round(time.Second))
	}
	if !c.PresharedKey.IsZero() {
		p.line("    preshared key yes")
	}
}

// publicKey is that of this side.
func publicKey(t Tunnel) string {
	if t.File.Config.PrivateKey.IsZero() {
		return "none: there is no PrivateKey"
	}
	return t.File.Config.PrivateKey.Public().String()
}

func orAny(port uint16) string {
	if port == 0 {
		return "any"
	}
	return fmt.Sprint(port)
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return " " + s
}
