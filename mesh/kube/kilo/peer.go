package kilo

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// PeerObject is a Peer of kilo.squat.ai/v1alpha1.
type PeerObject struct {
	Name string   `json:"name"` // of the metadata
	Spec PeerSpec `json:"spec"`
}

// PeerSpec is the spec of a PeerObject.
type PeerSpec struct {
	AllowedIPs          []string            `json:"allowedIPs"`
	Endpoint            *PeerEndpoint       `json:"endpoint,omitempty"`
	PersistentKeepalive int                 `json:"persistentKeepalive,omitempty"` // seconds
	PresharedKey        device.PresharedKey `json:"-"`                             // read by the caller, who keeps it
	PublicKey           string              `json:"publicKey"`
}

// PeerEndpoint is where a peer is reached. The name goes before the address.
type PeerEndpoint struct {
	DNSOrIP struct {
		DNS string `json:"dns,omitempty"`
		IP  string `json:"ip,omitempty"`
	} `json:"dnsOrIP"`
	Port uint32 `json:"port"`
}

// Peer is a peer as Kilo sees it.
type Peer struct {
	Name                string
	Key                 device.PublicKey
	PresharedKey        device.PresharedKey
	Endpoint            device.Endpoint // none: it speaks first
	PersistentKeepalive time.Duration
	AllowedIPs          []netip.Prefix // as written, host bits and all
}

// Ready reports whether Kilo counts the peer among the mesh.
func (p Peer) Ready() bool { return !p.Key.IsZero() && len(p.AllowedIPs) > 0 }

// ReadPeer reads a peer, and names what Kilo passes over without a word.
func ReadPeer(o PeerObject) (Peer, []mesh.Problem) {
	var problems []mesh.Problem
	report := func(field, value string, reason mesh.Reason, detail, remedy string) {
		s := mesh.Subject{Kind: mesh.KindPeer, Name: o.Name, Source: "peers.kilo.squat.ai/" + o.Name}
		problems = append(problems, mesh.Problem{Subject: s, Field: field, Value: value, Reason: reason, Detail: detail, Remedy: remedy})
	}
	p := Peer{Name: o.Name, PresharedKey: o.Spec.PresharedKey, PersistentKeepalive: max(0, time.Duration(o.Spec.PersistentKeepalive)*time.Second)}
	for i, text := range o.Spec.AllowedIPs {
		if prefix, ok := parsePrefix(text); ok {
			p.AllowedIPs = append(p.AllowedIPs, prefix)
			continue
		}
		report(fmt.Sprintf("spec.allowedIPs[%d]", i), text, mesh.Invalid, "is no prefix, it is ignored", "write it with its length, such as 10.5.0.7/32")
	}
	var err error
	if p.Key, err = device.ParsePublicKey(o.Spec.PublicKey); err != nil {
		report("spec.publicKey", "", mesh.NoKey, "is no public key, the peer is left out", "give the public key of the peer, as `wg pubkey` prints it")
	}
	if seconds := o.Spec.PersistentKeepalive; seconds < 0 || seconds > 65535 {
		report("spec.persistentKeepalive", fmt.Sprint(seconds), mesh.Invalid, "is not within 0 and 65535 seconds", "write 25, or leave it out")
	}
	if e := o.Spec.Endpoint; e != nil {
		var ok bool
		if p.Endpoint, ok = e.read(); !ok {
			report("spec.endpoint", e.host(), mesh.Invalid, "is neither an address nor a name with a port, the peer has to speak first", "give dns or ip, and a port from 1 to 65535")
		}
	}
	return p, problems
}

func (e *PeerEndpoint) host() string {
	if e.DNSOrIP.DNS != "" {
		return e.DNSOrIP.DNS
	}
	return e.DNSOrIP.IP
}

func (e *PeerEndpoint) read() (device.Endpoint, bool) {
	return parseEndpoint(hostPort(e.host(), int(e.Port)))
}
