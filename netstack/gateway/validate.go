package gateway

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stillwire/stillwire/device"
)

// validate checks what only the whole can show: names that are meant and are not there,
// two that want one place, and listeners that are open to others by mistake.
func (l *loader) validate() {
	if len(l.spec.Tunnels) == 0 {
		l.fail(&Error{Reason: "no tunnel is asked for: name a wg-quick file"})
		return
	}
	l.checkTunnels()
	for i := range l.spec.Services {
		l.checkService(&l.spec.Services[i])
	}
	l.checkAdmin()
	l.checkClashes()
}

func (l *loader) checkTunnels() {
	ports := make(map[uint16]*Tunnel)
	keys := make(map[device.PublicKey]*Tunnel)
	for i := range l.spec.Tunnels {
		t := &l.spec.Tunnels[i]
		if t.isGiven() {
			continue
		}
		config := t.File.Config
		if len(t.File.Addresses) == 0 {
			l.fail(&Error{Source: t.File.Path, Field: "Address", Reason: "is missing: add the address that this side has in the tunnel, such as Address = 10.0.0.2/32"})
		}
		if config.PrivateKey.IsZero() {
			l.fail(&Error{Source: t.File.Path, Field: "PrivateKey", Reason: "is missing: add PrivateKey, or PrivateKeyFile with the path of a file that holds it"})
		}
		if _, err := config.Normalized(); err != nil {
			l.fail(fmt.Errorf("%s: %w", t.File.Path, err))
		}
		if other := ports[config.ListenPort]; other != nil {
			l.fail(&Error{Source: t.File.Path, Field: "ListenPort", Value: fmt.Sprint(config.ListenPort), Reason: "is the port of tunnel " + other.Name + " too: give one of them another"})
		}
		if config.ListenPort != 0 {
			ports[config.ListenPort] = t
		}
		l.checkMTU(t)
		l.checkKey(t, keys)
	}
}

// checkMTU holds the MTU to what the protocols need: IPv6 promises 1280 (RFC 8200).
func (l *loader) checkMTU(t *Tunnel) {
	least, family := 576, "IPv4"
	for _, p := range t.File.Addresses {
		if p.Addr().Is6() && !p.Addr().Is4In6() {
			least, family = 1280, "IPv6"
		}
	}
	if m := t.File.MTU; m != 0 && m < least {
		l.fail(&Error{Source: t.File.Path, Field: "MTU", Value: fmt.Sprint(m), Reason: fmt.Sprintf("is too small for %s: give at least %d, or leave it out", family, least)})
	}
}

// checkKey warns of two tunnels with one identity: a far side takes each for a move of the
// other.
func (l *loader) checkKey(t *Tunnel, keys map[device.PublicKey]*Tunnel) {
	key := t.File.Config.PrivateKey.Public()
	if key.IsZero() {
		return
	}
	if other := keys[key]; other != nil {
		l.warn(t.File.Path, "PrivateKey", "", "is the key of tunnel "+other.Name+" too: a peer that both have will flap between them")
	}
	keys[key] = t
}

func (l *loader) warn(source, key, value, reason string) {
	l.spec.Warnings = append(l.spec.Warnings, notice(source, key, value, reason))
}

// notice is about what was asked for in "file:line".
func notice(source, key, value, reason string) device.Notice {
	if isFlag(source) {
		return device.Notice{File: originOf(source, key).field, Value: value, Reason: reason}
	}
	n := device.Notice{File: source, Key: key, Value: value, Reason: reason}
	if i := strings.LastIndexByte(source, ':'); i > 0 {
		if line, err := strconv.Atoi(source[i+1:]); err == nil {
			n.File, n.Line = source[:i], line
		}
	}
	return n
}

func (l *loader) checkService(s *Service) {
	t := l.tunnelOf(s)
	if t == nil {
		return
	}
	if s.Kind == Publish {
		l.checkInside(s, t)
		return
	}
	s.Open = s.Open || l.Open
	if s.Listen.beyond() && !s.guarded() && !s.Open {
		l.refuse(s, "can be reached by other machines: "+l.remedy(s))
	}
	if s.Listen.beyond() && !s.guarded() && s.Open {
		l.warn(s.Source, s.String(), "", "is open to everybody who can reach it, without a password, as was asked for")
	}
	l.checkReach(s, t)
}

// checkReach warns of flows that cannot arrive as things stand. Peers may come later, so it
// is no error.
func (l *loader) checkReach(s *Service, t *Tunnel) {
	addr := targetHost(s.Target)
	switch {
	case addr.IsValid() && !t.routes(addr):
		l.warn(s.Source, s.String(), s.Target, "is covered by no AllowedIPs of tunnel "+t.Name+": flows will be refused until a peer has it")
	case t.isGiven(): // what it has is not known before it runs
	case !addr.IsValid() && len(t.File.DNS) == 0 && !t.HostDNS:
		l.warn(s.Source, s.String(), s.Target, "needs names resolved and tunnel "+t.Name+" has no DNS: add DNS = ADDRESS to its file, or hostDNS: true to the gateway's YAML file")
	}
}

// refuse names a service in the words that it was asked for with.
func (l *loader) refuse(s *Service, reason string) {
	l.fail(originOf(s.Source, s.String()).refuse("", reason))
}

// remedy says how a listener is made safe, or how its openness is meant, in the words of
// the source that asks for it.
func (l *loader) remedy(s *Service) string {
	credential, open := "write USER:PASSFILE@ before it", "--open"
	switch {
	case l.Config != "" && strings.HasPrefix(s.Source, l.Config+":"):
		credential, open = "add users: FILE", "open: true"
	case !isFlag(s.Source):
		credential = "add Username and Password"
	}
	if s.Kind == Forward {
		return "listen on 127.0.0.1, or say that it is meant with " + open
	}
	return "listen on 127.0.0.1, " + credential + ", or say that it is meant with " + open
}

// tunnelOf finds the tunnel that a service means. With one tunnel there is nothing to say.
func (l *loader) tunnelOf(s *Service) *Tunnel {
	names := l.spec.tunnelNames()
	if s.Tunnel == "" {
		if len(names) > 1 {
			l.refuse(s, fmt.Sprintf("does not say which of %d tunnels it is for: %s", len(names), s.sayTunnel(names[0])))
			return nil
		}
		s.Tunnel = names[0]
	}
	t := l.spec.tunnel(s.Tunnel)
	if t == nil {
		l.refuse(s, fmt.Sprintf("is for tunnel %q, which is not there: %s", s.Tunnel, meant(s.Tunnel, names)))
	}
	return t
}

func (s Service) sayTunnel(name string) string {
	if !isFlag(s.Source) {
		return "add tunnel: " + name
	}
	return "write " + name + "/ before it"
}

// checkInside checks a publish: it listens where peers are meant to reach it, so it needs no
// credential, but an address of the tunnel.
func (l *loader) checkInside(s *Service, t *Tunnel) {
	if addr := s.Listen.Addr.Addr(); addr.IsValid() && !t.isGiven() && !t.has(addr) {
		l.refuse(s, fmt.Sprintf("is not at an address of tunnel %s, which has %s: leave the address out", t.Name, join(t.File.Addresses)))
	}
}

func (l *loader) checkAdmin() {
	a := l.spec.Admin
	if a.Listen.beyond() && !a.Open {
		l.refuse(&Service{Kind: "admin", Listen: a.Listen, Source: a.Source}, "can be reached by other machines: listen on 127.0.0.1 or unix:/path, or say that it is meant with open: true or --open")
	}
}

// checkClashes finds every two that the system could not open side by side.
func (l *loader) checkClashes() {
	type taken struct {
		place
		name, source string
	}
	var all []taken
	take := func(s *Service, p place) {
		for _, other := range all {
			if other.tunnel == p.tunnel && other.listen.clashes(p.listen) {
				l.refuse(s, fmt.Sprintf("has the place of %s (%s): give one of them another %s", other.name, other.source, p.listen.kind()))
			}
		}
		all = append(all, taken{p, s.String(), s.Source})
	}
	if l.spec.UAPIDir != "" {
		for _, t := range l.spec.Tunnels {
			at := Listen{Network: "unix", Path: filepath.Join(l.spec.UAPIDir, t.Name+".sock")}
			all = append(all, taken{place{listen: at}, "the socket of tunnel " + t.Name + " for wg", "--uapi or uapiDir"})
		}
	}
	if a := l.spec.Admin; !a.Listen.IsZero() {
		take(&Service{Kind: "admin", Listen: a.Listen, Source: a.Source}, place{listen: a.Listen})
	}
	for i, p := range l.spec.places() {
		take(&l.spec.Services[i], p)
	}
}

// kind is what must be another where two want one place.
func (l Listen) kind() string {
	if l.Network == "unix" {
		return "path"
	}
	return "port"
}
