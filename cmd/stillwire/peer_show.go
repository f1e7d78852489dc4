package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"
	"rsc.io/qr"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// showFlags are how a peer's end is shown.
type showFlags struct {
	Output string       `short:"o" enum:"wg-quick,qr,json,yaml" default:"wg-quick" placeholder:"FORMAT" help:"Format: wg-quick, qr, json or yaml (wg-quick)."`
	DNS    []netip.Addr `name:"dns" placeholder:"ADDRESS" help:"Name servers that the peer asks through the tunnel."`
	Search []string     `placeholder:"DOMAIN" help:"Domains that the peer tries for short names."`
}

// show prints what a peer is to have at its end.
func (f *showFlags) show(p *program, s mesh.Snapshot, problems []mesh.Problem, name string, key device.PrivateKey) error {
	text, err := f.render(p, s, problems, name, key)
	if err != nil {
		return err
	}
	return p.println(strings.TrimSuffix(text, "\n"))
}

// render is the text to show. What the mesh does not obey of the peer is an error when it is all of
// it, and is said on stderr when it is a part.
func (f *showFlags) render(p *program, s mesh.Snapshot, problems []mesh.Problem, name string, key device.PrivateKey) (string, error) {
	plan, found := mesh.PlanPeer(s, name)
	var lines []string
	for _, problem := range append(problems, found...) {
		if problem.Subject.Kind == mesh.KindPeer && problem.Subject.Name == name || problem.Reason == mesh.NoEndpoint {
			lines = append(lines, problem.String())
		}
	}
	if plan.Self == "" {
		return "", &wrong{errors.New(strings.Join(lines, "\n"))}
	}
	i := 0
	for s.Peers[i].Name != name {
		i++
	}
	switch public := s.Peers[i].PublicKey; {
	case !key.IsZero() && key.Public() != public:
		return "", &wrong{fmt.Errorf("the private key is not that of peer %s, whose public key is %s: give the right one, or change the Peer with --renew", name, public)}
	case len(plan.Addresses) == 0:
		return "", &wrong{fmt.Errorf("peer %s has no address of its own: give it meshAddresses, or a single address in allowedIPs", name)}
	case len(plan.Device.Peers) == 0:
		return "", &wrong{errors.New("no node of the mesh has published a key yet: see that the agents run")}
	}
	for _, line := range lines {
		_, _ = fmt.Fprintln(p.stderr, line)
	}
	plan.Device.PrivateKey = key
	quick := &device.File{Config: plan.Device, Addresses: plan.Addresses, DNS: f.DNS, DNSSearch: f.Search, MTU: plan.MTU}
	return f.format(quick, s.Peers[i].PublicKey)
}

func (f *showFlags) format(quick *device.File, public device.PublicKey) (string, error) {
	text := string(quick.Format())
	if quick.Config.PrivateKey.IsZero() {
		text = strings.Replace(text, "[Interface]\n", fmt.Sprintf("[Interface]\n# PrivateKey = (of the public key %s)\n", public), 1)
	}
	switch f.Output {
	case "qr":
		if quick.Config.PrivateKey.IsZero() {
			return "", &wrong{errors.New("a QR code without a private key is of no use to a phone: give --renew, or --key-file")}
		}
		return qrCode(text)
	case "json", "yaml":
		return f.structured(quick)
	}
	return text, nil
}

// qrCode draws a code with half blocks, dark on light.
func qrCode(text string) (string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", fmt.Errorf("%d bytes do not fit into a QR code, which holds 2953: send the file of -o wg-quick instead, or use the location topology, in which a peer calls the leaders alone", len(text))
	}
	const border = 2
	var b strings.Builder
	for y := -border; y < code.Size+border; y += 2 {
		for x := -border; x < code.Size+border; x++ {
			b.WriteRune([]rune{'█', '▀', '▄', ' '}[bit(code.Black(x, y))*2+bit(code.Black(x, y+1))])
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

func bit(black bool) int {
	if black {
		return 1
	}
	return 0
}

// peerText is a peer's end for programs.
type peerText struct {
	PrivateKey string         `json:"privateKey,omitempty" yaml:"privateKey,omitempty"`
	Addresses  []string       `json:"addresses" yaml:"addresses"`
	ListenPort int            `json:"listenPort,omitempty" yaml:"listenPort,omitempty"`
	DNS        []string       `json:"dns,omitempty" yaml:"dns,omitempty"`
	MTU        int            `json:"mtu" yaml:"mtu"`
	Peers      []peerTextPeer `json:"peers" yaml:"peers"`
}

type peerTextPeer struct {
	Name                string   `json:"name" yaml:"name"`
	PublicKey           string   `json:"publicKey" yaml:"publicKey"`
	PresharedKey        string   `json:"presharedKey,omitempty" yaml:"presharedKey,omitempty"`
	Endpoint            string   `json:"endpoint,omitempty" yaml:"endpoint,omitempty"`
	PersistentKeepalive int      `json:"persistentKeepalive,omitempty" yaml:"persistentKeepalive,omitempty"` // seconds
	AllowedIPs          []string `json:"allowedIPs" yaml:"allowedIPs"`
}

func (f *showFlags) structured(quick *device.File) (string, error) {
	out := peerText{ListenPort: int(quick.Config.ListenPort), MTU: quick.MTU, Addresses: words(quick.Addresses), DNS: append(words(quick.DNS), quick.DNSSearch...)}
	if !quick.Config.PrivateKey.IsZero() {
		out.PrivateKey = quick.Config.PrivateKey.Reveal()
	}
	for _, peer := range quick.Config.Peers {
		t := peerTextPeer{
			Name: peer.Name, PublicKey: peer.PublicKey.String(), Endpoint: peer.Endpoint.String(),
			PersistentKeepalive: int(peer.PersistentKeepalive.Seconds()), AllowedIPs: words(peer.AllowedIPs),
		}
		if !peer.PresharedKey.IsZero() {
			t.PresharedKey = peer.PresharedKey.Reveal()
		}
		out.Peers = append(out.Peers, t)
	}
	if f.Output == "json" {
		b, err := json.MarshalIndent(out, "", "  ")
		return string(b), err
	}
	b, err := yaml.Marshal(out)
	return string(b), err
}

func words[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = x.String()
	}
	return out
}
