package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

// Report is what a gateway would be made of, for people as text and for programs as JSON. It
// holds no secret.
type Report struct {
	Tunnels  []TunnelReport  `json:"tunnels"`
	Services []ServiceReport `json:"services"`
	Admin    string          `json:"admin,omitempty"`    // where it listens
	Ignored  []string        `json:"ignored,omitempty"`  // lines that are not obeyed, with the reason
	Warnings []string        `json:"warnings,omitempty"` // lines that may surprise
	Refused  []string        `json:"refused,omitempty"`  // why a gateway would not start

	text string
}

// TunnelReport is a tunnel of a Report.
type TunnelReport struct {
	Name       string         `json:"name"`
	File       string         `json:"file"`
	PublicKey  string         `json:"publicKey,omitempty"` // "": there is no private key
	Addresses  []netip.Prefix `json:"addresses"`
	DNS        string         `json:"dns,omitempty"` // servers and search domains
	HostDNS    bool           `json:"hostDNS,omitempty"`
	ListenPort uint16         `json:"listenPort,omitempty"` // 0: any
	MTU        int            `json:"mtu,omitempty"`        // bytes; 0: the usual
	Peers      []PeerReport   `json:"peers"`
}

// PeerReport is a peer of a TunnelReport.
type PeerReport struct {
	Name         string           `json:"name,omitempty"`
	PublicKey    device.PublicKey `json:"publicKey"`
	Endpoint     string           `json:"endpoint,omitempty"` // "": the peer must speak first
	AllowedIPs   []netip.Prefix   `json:"allowedIPs"`
	Keepalive    float64          `json:"keepalive,omitempty"` // seconds; 0: off
	PresharedKey bool             `json:"presharedKey"`        // there is one
	Source       string           `json:"source"`
}

// ServiceReport is a service of a Report.
type ServiceReport struct {
	Kind    Kind   `json:"kind"`
	Tunnel  string `json:"tunnel,omitempty"`
	Network string `json:"network"`
	Listen  string `json:"listen"`
	Target  string `json:"target,omitempty"`
	Users   int    `json:"users"` // who may use it; 0: everyone who reaches the listener
	Source  string `json:"source"`
}

// String says it for people, all but what is refused.
func (r Report) String() string { return r.text }

// Check reads what a gateway would read, looks at the folders that it would write to, and opens
// nothing. The Report says what would be done, what is read and not obeyed, and what may
// surprise. The error, as Load's, is what a gateway would refuse; the Report then shows as much
// as could be read. Whether ports are free is not tried.
func Check(s Sources) (Report, error) {
	l := load(s, newReads())
	if len(l.errs) == 0 {
		l.errs = l.spec.wants()
	}
	err := errors.Join(l.errs...)
	r := report(l.spec)
	if err != nil {
		r.Refused = reasons(err)
	}
	return r, err
}

func report(s Spec) Report {
	r := Report{Admin: s.Admin.Listen.String(), Ignored: texts(s.Ignored), Warnings: texts(s.Warnings), text: describe(s)}
	r.Tunnels, r.Services = []TunnelReport{}, []ServiceReport{}
	for _, t := range s.Tunnels {
		r.Tunnels = append(r.Tunnels, tunnelReport(t))
	}
	for _, service := range s.Services {
		r.Services = append(r.Services, ServiceReport{
			Kind: service.Kind, Tunnel: service.Tunnel, Network: service.Network(), Listen: service.Listen.String(),
			Target: service.Target, Users: len(service.Users.Names()), Source: service.Source,
		})
	}
	return r
}

func tunnelReport(t Tunnel) TunnelReport {
	r := TunnelReport{
		Name: t.Name, File: t.File.Path, Addresses: t.File.Addresses, DNS: t.dns(), HostDNS: t.HostDNS,
		ListenPort: t.File.Config.ListenPort, MTU: t.File.MTU, Peers: []PeerReport{},
	}
	if key := t.File.Config.PrivateKey; !key.IsZero() {
		r.PublicKey = key.Public().String()
	}
	for _, p := range t.File.Config.Peers {
		r.Peers = append(r.Peers, PeerReport{
			Name: p.Name, PublicKey: p.PublicKey, Endpoint: p.Endpoint.String(), AllowedIPs: p.AllowedIPs,
			Keepalive: p.PersistentKeepalive.Seconds(), PresharedKey: !p.PresharedKey.IsZero(), Source: p.Source,
		})
	}
	return r
}

// describe is the text of a Report.
func describe(s Spec) string {
	var p printer
	for _, t := range s.Tunnels {
		p.tunnel(t)
	}
	if len(s.Services) > 0 {
		p.line("services")
	}
	for _, service := range s.Services {
		p.line("  %s %s (%s)", service, service.summary(), service.Source)
	}
	if a := s.Admin; !a.Listen.IsZero() {
		p.line("admin %s (%s)", a.Listen, a.Source)
	}
	p.notices("ignored", s.Ignored)
	p.notices("warnings", s.Warnings)
	return p.String()
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
