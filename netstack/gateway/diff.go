package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

// Change is one difference between what runs and what is asked for: one line of a log or a
// plan. It never holds a secret.
type Change struct {
	What  string `json:"what"`            // "tunnel wg0", "tunnel wg0 peer xTIBA5rb… (laptop)", "socks5 127.0.0.1:1080"
	Field string `json:"field,omitempty"` // "target", "allowed_ips", …; "" when the thing itself comes or goes
	Old   string `json:"old"`             // "": there was none
	New   string `json:"new"`             // "": there will be none
	Cause string `json:"cause,omitempty"` // where it was asked for
}

// String is one line: what, old, new, cause, as in
// "forward tcp/127.0.0.1:5432: target: 10.0.0.5:5432 -> 10.0.0.6:5432 [gateway.yaml:9]".
func (c Change) String() string {
	var b strings.Builder
	b.WriteString(c.What + ": ")
	if c.Field != "" {
		b.WriteString(c.Field + ": ")
	}
	b.WriteString(c.difference())
	if c.Cause != "" {
		b.WriteString(" [" + c.Cause + "]")
	}
	return b.String()
}

// difference is old and new in the words of a device.
func (c Change) difference() string {
	return device.Change{Field: c.Field, Old: c.Old, New: c.New}.Difference()
}

// Diff returns what differs between two Specs, tunnels first: all but what is inside the
// WireGuard devices, which only a running gateway can tell. It is pure, and Diff(x, x) is
// empty.
func Diff(have, want Spec) []Change {
	return difference(have, want).changes
}

// steps are the work that makes one Spec of another.
type steps struct {
	open    []Tunnel     // tunnels to open
	keep    []tunnelPair // tunnels that stay, changed or not
	close   []Tunnel
	start   []int // services of want, by index
	alter   []servicePair
	stop    []int             // services of have, by index
	admin   bool              // its listener differs
	renamed map[string]string // tunnels that stay under another name: old to new
	changes []Change
}

type tunnelPair struct{ have, want Tunnel }

// servicePair are two services in one place, by index.
type servicePair struct{ have, want int }

func difference(have, want Spec) steps {
	s := steps{renamed: make(map[string]string)}
	s.tunnels(have, want)
	s.services(have, want)
	s.settings(have, want)
	return s
}

// tunnels pairs tunnels by name and key; what is left over by key, for a file that was renamed,
// even if another has its name now; then by name, for a new key; and then by port, which only
// one device can hold.
func (s *steps) tunnels(have, want Spec) {
	old := slices.Clone(have.Tunnels)
	pairs := make(map[string]Tunnel)
	for _, alike := range []func(a, b Tunnel) bool{same, sameKey, sameName, samePort} {
		for _, w := range want.Tunnels {
			i := slices.IndexFunc(old, func(h Tunnel) bool { return alike(h, w) })
			if _, paired := pairs[w.Name]; !paired && i >= 0 {
				pairs[w.Name] = old[i]
				old = slices.Delete(old, i, i+1)
			}
		}
	}
	for _, w := range want.Tunnels {
		h, paired := pairs[w.Name]
		if !paired {
			s.open = append(s.open, w)
			s.note("tunnel "+w.Name, "", "", w.summary(), w.Source)
			continue
		}
		s.keep = append(s.keep, tunnelPair{h, w})
		s.renamed[h.Name] = w.Name
		s.tunnel(h, w)
	}
	for _, h := range old {
		s.close = append(s.close, h)
		s.note("tunnel "+h.Name, "", h.summary(), "", "no longer asked for")
	}
}

func same(a, b Tunnel) bool { return sameName(a, b) && sameKey(a, b) }

func sameName(a, b Tunnel) bool { return a.Name == b.Name }

func sameKey(a, b Tunnel) bool {
	key := a.File.Config.PrivateKey
	return !key.IsZero() && key.Equal(b.File.Config.PrivateKey)
}

func samePort(a, b Tunnel) bool {
	port := a.File.Config.ListenPort
	return port != 0 && port == b.File.Config.ListenPort
}

func (s *steps) tunnel(h, w Tunnel) {
	what := "tunnel " + w.Name
	s.note(what, "name", h.Name, w.Name, w.Source)
	s.note(what, "addresses", join(h.File.Addresses), join(w.File.Addresses), w.where("Address"))
	s.note(what, "dns", h.dns(), w.dns(), w.where("DNS"))
	s.note(what, "mtu", mtu(h), mtu(w), w.where("MTU"))
	if had := h.File.Config.ListenPort; had != 0 && w.File.Config.ListenPort == 0 {
		s.note(what, "listen_port", fmt.Sprint(had), "any", w.File.Path+", holds when the gateway starts anew, until then the port stays")
	}
	if h.HostDNS != w.HostDNS {
		s.note(what, "hostDNS", fmt.Sprint(h.HostDNS), fmt.Sprint(w.HostDNS), w.Source+", holds when the gateway starts anew")
	}
}

// summary is what a change line says of a tunnel that comes or goes.
func (t Tunnel) summary() string {
	return fmt.Sprintf("%s with %d peers", join(t.File.Addresses), len(t.File.Config.Peers))
}

func (t Tunnel) dns() string {
	return strings.Join(append(strings.Fields(join(t.File.DNS)), t.File.DNSSearch...), " ")
}

func mtu(t Tunnel) string {
	if t.File.MTU == 0 {
		return "usual"
	}
	return fmt.Sprint(t.File.MTU)
}

// note adds a change unless old and new are one.
func (s *steps) note(what, field, old, new, cause string) {
	if old != new {
		s.changes = append(s.changes, Change{what, field, old, new, cause})
	}
}

func (s *steps) services(have, want Spec) {
	have.Services = slices.Clone(have.Services)
	for i := range have.Services {
		h := &have.Services[i]
		h.Tunnel = cmp.Or(s.renamed[h.Tunnel], h.Tunnel)
	}
	old := make(map[place]int)
	for i, p := range have.places() {
		old[p] = i
	}
	for j, p := range want.places() {
		w := want.Services[j]
		i, ok := old[p]
		if !ok {
			s.start = append(s.start, j)
			s.note(w.String(), "", "", w.summary(), w.Source)
			continue
		}
		delete(old, p)
		s.alter = append(s.alter, servicePair{i, j})
		s.service(have.Services[i], w)
	}
	for _, i := range slices.Sorted(maps.Values(old)) {
		h := have.Services[i]
		s.stop = append(s.stop, i)
		s.note(h.String(), "", h.summary(), "", "no longer asked for")
	}
}

func (s *steps) service(h, w Service) {
	what := w.String()
	s.note(what, "kind", string(h.Kind), string(w.Kind), w.Source)
	s.note(what, "tunnel", h.Tunnel, w.Tunnel, w.Source)
	s.note(what, "target", h.Target, w.Target, w.Source)
	s.note(what, "open", fmt.Sprint(h.Open), fmt.Sprint(w.Open), w.Source)
	s.note(what, "idle", idle(h.Idle), idle(w.Idle), w.Source)
	if !h.sameUsers(&w) {
		s.changes = append(s.changes, Change{what, "users", users(h), users(w), w.Source})
	}
}

// summary is what a change line says of a service that comes or goes.
func (s Service) summary() string {
	switch s.Kind {
	case Forward, Publish:
		return "to " + s.Target
	}
	if s.Tunnel == "" {
		return "into the tunnel for " + users(s) // before validation
	}
	return "into tunnel " + s.Tunnel + " for " + users(s)
}

// users counts, for the names of users are nobody else's business.
func users(s Service) string {
	if s.strangers {
		return "users that cannot be read"
	}
	switch n := len(s.Users.Names()); n {
	case 0:
		return "everyone"
	case 1:
		return "1 user"
	default:
		return fmt.Sprintf("%d users", n)
	}
}

func idle(d time.Duration) string {
	switch {
	case d == 0:
		return "usual"
	case d < 0:
		return "never"
	}
	return d.String()
}

func (s *steps) settings(have, want Spec) {
	s.admin = have.Admin.Listen != want.Admin.Listen ||
		have.Admin.Open != want.Admin.Open && want.Admin.Listen.Network == "unix" // another mode
	s.note("gateway", "admin", have.Admin.Listen.String(), want.Admin.Listen.String(), want.Admin.Source)
	s.note("gateway", "drain", have.Drain.String(), want.Drain.String(), want.Where["drain"])
	s.atStart("stateDir", have.StateDir, want.StateDir, want.Where["stateDir"])
	s.atStart("uapiDir", have.UAPIDir, want.UAPIDir, want.Where["uapiDir"])
}

// atStart notes a setting that cannot change under a running tunnel.
func (s *steps) atStart(field, old, new, where string) {
	if where != "" {
		where += ", "
	}
	s.note("gateway", field, old, new, where+"for tunnels that are opened from now on")
}

func join[T netip.Addr | netip.Prefix](list []T) string {
	return strings.Trim(fmt.Sprint(list), "[]")
}

// fromDevice turns a device's changes into the gateway's.
func fromDevice(tunnel string, changes []device.Change) (out []Change) {
	for _, c := range changes {
		out = append(out, Change{peerName(tunnel, c.Peer, c.Name), c.Field, c.Old, c.New, c.Cause})
	}
	return out
}

// fromFile is fromDevice for changes that make a device what a file says, whose lines it names.
// A key is shown by its public half.
func fromFile(have, want Tunnel, changes []device.Change) []Change {
	out := fromDevice(want.Name, changes)
	for i := range out {
		c := &out[i]
		switch c.Field {
		case "private_key":
			c.Field = "public_key"
			c.Old, c.New = have.File.Config.PrivateKey.Public().String(), want.File.Config.PrivateKey.Public().String()
			c.Cause = cmp.Or(c.Cause, want.where("PrivateKey"))
		case "listen_port":
			c.Cause = cmp.Or(c.Cause, want.where("ListenPort"))
		case "fwmark":
			c.Cause = cmp.Or(c.Cause, want.where("FwMark"))
		}
		c.Cause = cmp.Or(c.Cause, want.File.Path)
	}
	return out
}

// peerName is what people call a peer, or the tunnel itself when there is no key.
func peerName(tunnel string, key device.PublicKey, name string) string {
	what := "tunnel " + tunnel
	if !key.IsZero() {
		what += " peer " + key.Short()
	}
	if name != "" {
		what += " (" + name + ")"
	}
	return what
}
