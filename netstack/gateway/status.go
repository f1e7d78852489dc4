package gateway

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack/proxy"
)

// Status is what a gateway is at one moment. It holds no secret. Times are RFC 3339 in JSON,
// durations seconds.
type Status struct {
	Started  time.Time       `json:"started"`
	Ready    bool            `json:"ready"`
	NotReady []string        `json:"notReady,omitempty"` // why not, one reason a line
	Draining bool            `json:"draining"`
	Config   ConfigStatus    `json:"config"`
	Tunnels  []TunnelStatus  `json:"tunnels"`
	Services []ServiceStatus `json:"services"`
	Problems []Problem       `json:"problems,omitempty"`
}

// ConfigStatus is what became of the files.
type ConfigStatus struct {
	Files    []string   `json:"files"`   // all that were read
	Applied  time.Time  `json:"applied"` // when they last took effect, changed or not
	Watched  bool       `json:"watched"` // changes of them are noticed
	Rejected *Rejection `json:"rejected,omitempty"`
	Ignored  []string   `json:"ignored,omitempty"`  // lines that are not obeyed, with the reason
	Warnings []string   `json:"warnings,omitempty"` // lines that may surprise
}

// Rejection is a change of the files that could not be obeyed. What ran before runs on.
type Rejection struct {
	Since   time.Time `json:"since"`
	Reasons []string  `json:"reasons"`
}

// Problem is something that is wrong and that the gateway goes on trying to mend.
type Problem struct {
	Subject string    `json:"subject"`        // "socks5 127.0.0.1:1080", "tunnel wg0 peer xTIBA5rb… (laptop)"
	Since   time.Time `json:"since,omitzero"` // zero: not known
	Reason  string    `json:"reason"`
}

// TunnelStatus is one tunnel.
type TunnelStatus struct {
	Name       string            `json:"name"`
	File       string            `json:"file"`
	Up         bool              `json:"up"`
	Down       string            `json:"down,omitempty"` // why it is not up
	PublicKey  device.PublicKey  `json:"publicKey"`
	ListenPort uint16            `json:"listenPort"`
	Addresses  []netip.Prefix    `json:"addresses"`
	DNS        []netip.Addr      `json:"dns,omitempty"`
	MTU        int               `json:"mtu"` // bytes
	Peers      []PeerStatus      `json:"peers"`
	Drops      map[string]uint64 `json:"drops,omitempty"` // packets, by reason
}

// PeerStatus is one peer of a tunnel. Its endpoint is told three times: as the file declares
// it, as it was last set, and where its packets come from now.
type PeerStatus struct {
	Name          string           `json:"name,omitempty"`
	PublicKey     device.PublicKey `json:"publicKey"`
	Declared      string           `json:"declared,omitempty"`
	Applied       string           `json:"applied,omitempty"`
	Endpoint      string           `json:"endpoint,omitempty"`
	Roamed        bool             `json:"roamed"`
	AllowedIPs    []netip.Prefix   `json:"allowedIPs"`
	Keepalive     float64          `json:"keepalive,omitempty"` // seconds; 0: off
	Problem       string           `json:"problem,omitempty"`   // why the declared endpoint cannot be used, or why there is no session
	LastHandshake time.Time        `json:"lastHandshake,omitzero"`
	HandshakeAge  float64          `json:"handshakeAge,omitempty"` // seconds; 0: never
	Handshakes    uint64           `json:"handshakes"`             // since the tunnel was opened
	ReceiveBytes  uint64           `json:"receiveBytes"`
	TransmitBytes uint64           `json:"transmitBytes"`
}

// ServiceStatus is one service.
type ServiceStatus struct {
	Kind    Kind   `json:"kind"`
	Tunnel  string `json:"tunnel"`
	Network string `json:"network"`
	Listen  string `json:"listen"` // as it is open, with the port that the system chose
	Target  string `json:"target,omitempty"`
	Users   int    `json:"users"` // who may use it; 0: everyone who reaches the listener
	Source  string `json:"source"`
	Up      bool   `json:"up"`
	Traffic
}

// Traffic counts what a service did since it was started. Sent is towards the target.
type Traffic struct {
	Flows         int               `json:"flows"`    // that run now
	Accepted      uint64            `json:"accepted"` // flows since the start
	SentBytes     uint64            `json:"sentBytes"`
	ReceivedBytes uint64            `json:"receivedBytes"`
	Refused       map[string]uint64 `json:"refused,omitempty"` // flows, by reason
	Cut           map[string]uint64 `json:"cut,omitempty"`     // flows that did not end by themselves, by reason
	Dropped       map[string]uint64 `json:"dropped,omitempty"` // datagrams, by reason
}

func trafficOf(c proxy.Counters) Traffic {
	return Traffic{
		Flows:         c.Live,
		Accepted:      c.Accepted,
		SentBytes:     c.Sent,
		ReceivedBytes: c.Received,
		Refused:       byName(c.Refused),
		Cut:           byName(c.Cut),
		Dropped:       byName(c.Dropped),
	}
}

func byName[K ~string](counts map[K]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(counts))
	for reason, n := range counts {
		if n > 0 {
			out[string(reason)] = n
		}
	}
	return out
}

func peerStatus(p device.PeerState, now time.Time) PeerStatus {
	s := PeerStatus{
		Name:          p.Name,
		PublicKey:     p.PublicKey,
		Declared:      p.Declared.String(),
		Applied:       addrText(p.Applied),
		Endpoint:      addrText(p.Endpoint),
		Roamed:        p.Roamed(),
		AllowedIPs:    p.AllowedIPs,
		Keepalive:     p.PersistentKeepalive.Seconds(),
		Problem:       cmp.Or(p.EndpointProblem, p.HandshakeProblem),
		LastHandshake: p.LastHandshake,
		Handshakes:    p.Handshakes,
		ReceiveBytes:  p.ReceiveBytes,
		TransmitBytes: p.TransmitBytes,
	}
	if !p.LastHandshake.IsZero() {
		s.HandshakeAge = now.Sub(p.LastHandshake).Round(time.Millisecond).Seconds()
	}
	return s
}

func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Status returns what the gateway is now. It asks each device, so call it when somebody
// wants to know, not in a loop.
func (g *Gateway) Status() Status {
	at := time.Now()
	s := Status{Draining: g.draining.Load(), Config: g.outcome.status()}
	s.Config.Watched = g.watched.Load()
	now := g.now.Load()
	if now == nil {
		s.NotReady = []string{"the gateway is not running"}
		return s
	}
	s.Started = now.started
	s.Config.Ignored, s.Config.Warnings = texts(now.spec.Ignored), texts(now.spec.Warnings)
	if s.Draining {
		s.NotReady = append(s.NotReady, "the gateway is stopping")
	}
	for _, spec := range now.spec.Tunnels {
		s.addTunnel(now.tunnels[spec.Name].status(at))
	}
	for _, service := range now.services {
		s.addService(service)
	}
	s.Ready = len(s.NotReady) == 0
	return s
}

func (s *Status) addTunnel(t TunnelStatus) {
	s.Tunnels = append(s.Tunnels, t)
	if !t.Up {
		s.NotReady = append(s.NotReady, "tunnel "+t.Name+" is down: "+t.Down)
	}
	for _, p := range t.Peers {
		if p.Problem != "" {
			s.Problems = append(s.Problems, Problem{Subject: peerName(t.Name, p.PublicKey, p.Name), Reason: p.Problem})
		}
	}
}

func (s *Status) addService(service *service) {
	s.Services = append(s.Services, service.status())
	for _, p := range service.problems() {
		s.Problems = append(s.Problems, p)
		s.NotReady = append(s.NotReady, p.Subject+" does not listen: "+p.Reason)
	}
}

func texts(notices []device.Notice) (out []string) {
	for _, n := range notices {
		out = append(out, n.String())
	}
	return out
}
