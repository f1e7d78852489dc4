package mesh

import "net/netip"

// PlanReport is a Plan for programs, in JSON. It has no secret.
type PlanReport struct {
	Node          string           `json:"node"`
	Location      string           `json:"location"`
	Leads         bool             `json:"leads"`
	Leaders       []ReportLocation `json:"leaders,omitempty"`
	MeshAddresses []netip.Addr     `json:"meshAddresses"`
	ListenPort    int              `json:"listenPort"`
	Peers         []PlannedPeer    `json:"peers"`
	Routes        []PlannedRoute   `json:"routes"`
	Problems      []ReportProblem  `json:"problems"`
}

// PlannedPeer is one peer of the device.
type PlannedPeer struct {
	Name                string         `json:"name"`
	PublicKey           string         `json:"publicKey"`
	PresharedKey        bool           `json:"presharedKey"` // whether there is one
	Endpoint            string         `json:"endpoint,omitempty"`
	PersistentKeepalive int            `json:"persistentKeepalive"` // seconds, 0: off
	AllowedIPs          []netip.Prefix `json:"allowedIPs"`
}

// PlannedRoute is one route of the machine.
type PlannedRoute struct {
	Destination netip.Prefix `json:"destination"`
	Via         Via          `json:"via"`
	Gateway     string       `json:"gateway,omitempty"`
	Source      string       `json:"source,omitempty"`
	MTU         int          `json:"mtu,omitempty"`
	Member      string       `json:"member"`
	Forwarded   bool         `json:"forwarded,omitempty"` // for what pods send alone
}

// Report is the plan, and the problems that were found with it, for programs.
func (p Plan) Report(problems []Problem) PlanReport {
	r := PlanReport{
		Node: p.Self, Location: p.Location, Leads: p.Publish.Leads != 0, ListenPort: int(p.Device.ListenPort),
		MeshAddresses: append([]netip.Addr{}, p.Publish.MeshAddresses...),
		Peers:         []PlannedPeer{}, Routes: []PlannedRoute{}, Problems: reportProblems(problems),
	}
	for _, l := range p.Leaders {
		r.Leaders = append(r.Leaders, ReportLocation(l))
	}
	for _, peer := range p.Device.Peers {
		r.Peers = append(r.Peers, PlannedPeer{
			peer.Name, peer.PublicKey.String(), !peer.PresharedKey.IsZero(), peer.Endpoint.String(),
			int(peer.PersistentKeepalive.Seconds()), append([]netip.Prefix{}, peer.AllowedIPs...),
		})
	}
	for _, route := range p.Host.Routes {
		r.Routes = append(r.Routes, route.report(false))
	}
	for _, route := range p.Host.Forwarded {
		r.Routes = append(r.Routes, route.report(true))
	}
	return r
}

func (r Route) report(forwarded bool) PlannedRoute {
	text := func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	return PlannedRoute{r.Dst, r.Via, text(r.Gateway), text(r.Src), r.MTU, r.Member, forwarded}
}

func reportProblems(problems []Problem) []ReportProblem {
	list := []ReportProblem{}
	for _, p := range problems {
		list = append(list, ReportProblem{p.Subject.Kind, p.Subject.Name, p.Subject.Source, p.Field, p.Value, p.Reason, p.Detail, p.Remedy})
	}
	return list
}
