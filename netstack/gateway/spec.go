package gateway

import (
	"crypto/sha256"
	"net/netip"
	"slices"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
	"github.com/stillwire/stillwire/netstack/proxy"
)

// DefaultDrain is how long old flows are given at shutdown when nothing else is asked for.
// It leaves room inside the 30 s that Kubernetes gives a pod.
const DefaultDrain = 20 * time.Second

// Spec is all that a gateway shall be: what flags, a YAML file and tunnel files ask for,
// read and checked as a whole by Load. It is a value and is not changed once loaded.
type Spec struct {
	Tunnels  []Tunnel  // in the order they were asked for
	Services []Service // in the order they were asked for
	Admin    Admin
	Drain    time.Duration // how long old flows are given to end; 0 aborts them at once
	StateDir string        // where learnt endpoints are kept; "": nowhere
	UAPIDir  string        // where wg(8) finds a socket for each tunnel; "": none
	// Where says where drain, stateDir and uapiDir were asked for: "--drain", "gateway.yaml:9".
	Where map[string]string

	// Ignored are the lines that are read and not obeyed, with the reason.
	Ignored []device.Notice
	// Warnings are the lines that are obeyed in a way that may surprise.
	Warnings []device.Notice
}

// Tunnel is one WireGuard tunnel, from one file.
type Tunnel struct {
	Name    string // unique; of letters, digits and _=+.-
	File    *device.File
	Net     *netstack.Net // runs already, see Sources.Given; nil: it is opened from File
	HostDNS bool          // names are resolved by this machine's resolver and not through the tunnel
	Source  string        // what asked for it: the file's path, or "gateway.yaml:3"
}

// Kind is what a service does.
type Kind string

// The kinds of service.
const (
	SOCKS5  Kind = "socks5"  // SOCKS5 proxy into the tunnel (RFC 1928, RFC 1929)
	HTTP    Kind = "http"    // HTTP proxy into the tunnel (RFC 9110)
	Forward Kind = "forward" // a listener here, a target behind the tunnel
	Publish Kind = "publish" // a listener inside the tunnel, a target here
)

// Service is one listener and what is done with the flows that come in.
type Service struct {
	Kind   Kind
	Tunnel string // the name of its tunnel
	Listen Listen // on this machine, or inside the tunnel for a publish
	// Target of a forward or publish: HOST:PORT. A forward's names are resolved through the
	// tunnel, a publish's by this machine. A TCP publish may have unix:/path.
	Target string
	// Users may use a proxy. None: everyone who can reach the listener.
	Users proxy.Users
	login *login // nil: no users
	// strangers tells that users are asked for and could not be read: then the Spec is refused.
	strangers bool
	// Open allows a listener beyond loopback without a credential, and a unix socket that
	// other users of this machine may use.
	Open bool
	// Idle is after what silence a UDP flow is forgotten, or a TCP flow of a forward or
	// publish is closed. 0: the usual time; negative: never.
	Idle   time.Duration
	Source string // where it was asked for: "--socks5", "gateway.yaml:7", "wg0.conf:20"
}

// login tells one set of users from another, of which only salted hashes are kept. It is
// held by pointer, so that it is not printed with a Service.
type login [sha256.Size]byte

// admit sets who may use the service. text is what the users were made of.
func (s *Service) admit(users proxy.Users, text string) {
	sum := login(sha256.Sum256([]byte(text)))
	s.Users, s.login, s.strangers = users, &sum, false
}

// sameUsers reports whether the same users may use both, with the same passwords.
func (s *Service) sameUsers(other *Service) bool {
	if s.login == nil || other.login == nil {
		return s.login == other.login
	}
	return *s.login == *other.login
}

// guarded reports whether a user and a password are asked for.
func (s *Service) guarded() bool { return !s.Users.IsZero() }

// Admin is the listener of /livez, /readyz, /status and /plan.
type Admin struct {
	Listen Listen // zero: none
	Open   bool   // allows a listener beyond loopback
	Source string
}

// Network is what the service carries on its listener: "tcp" or "udp".
func (s Service) Network() string {
	if s.Listen.Network == "udp" {
		return "udp"
	}
	return "tcp"
}

// String names a service the way its flag does: "socks5 127.0.0.1:1080",
// "forward tcp/127.0.0.1:5432", "publish wg0/tcp/8080".
func (s Service) String() string {
	switch s.Kind {
	case Forward:
		return string(s.Kind) + " " + s.Network() + "/" + s.Listen.String()
	case Publish:
		listen := s.Listen.String()
		if !s.Listen.Addr.Addr().IsValid() {
			listen = listen[1:]
		}
		return string(s.Kind) + " " + s.Tunnel + "/" + s.Network() + "/" + listen
	}
	return string(s.Kind) + " " + s.Listen.String()
}

// place is where a service listens, which is what makes it the same service after a
// reload: all else can change under the flows.
type place struct {
	tunnel string // of a publish
	listen Listen
	kind   Kind // of a listener whose port the system chooses
	nth    int  // tells such listeners apart
}

// places returns the place of each service.
func (s Spec) places() []place {
	out := make([]place, len(s.Services))
	seen := make(map[place]int)
	for i, service := range s.Services {
		p := place{listen: service.Listen}
		if service.Kind == Publish {
			p.tunnel = service.Tunnel
		}
		if service.Listen.Network != "unix" && service.Listen.Addr.Port() == 0 {
			p.kind = service.Kind
			seen[p]++
			p.nth = seen[p]
		}
		out[i] = p
	}
	return out
}

// tunnel returns the tunnel of that name, or nil.
func (s *Spec) tunnel(name string) *Tunnel {
	i := slices.IndexFunc(s.Tunnels, func(t Tunnel) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Tunnels[i]
}

func (s *Spec) tunnelNames() (names []string) {
	for _, t := range s.Tunnels {
		names = append(names, t.Name)
	}
	return names
}

// has reports whether the tunnel owns the address.
func (t *Tunnel) has(addr netip.Addr) bool {
	addresses := t.File.Addresses
	if t.isGiven() {
		addresses = t.Net.Addresses()
	}
	return slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr().Unmap() == addr })
}

// routes reports whether a peer of the tunnel may carry packets to the address, or the
// address is the tunnel's own.
func (t *Tunnel) routes(addr netip.Addr) bool {
	if t.has(addr) || t.isGiven() {
		return true
	}
	for _, peer := range t.File.Config.Peers {
		if slices.ContainsFunc(peer.AllowedIPs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return true
		}
	}
	return false
}
