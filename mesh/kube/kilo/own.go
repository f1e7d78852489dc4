package kilo

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"github.com/stillwire/stillwire/device"
)

// Own is what an agent says of its node to Kilo's agents and tools.
type Own struct {
	Endpoint    device.Endpoint
	InternalIP  netip.Prefix // the address with the mask of its link; invalid: none
	Key         device.PublicKey
	LastSeen    time.Time
	WireGuardIP netip.Prefix // with the mask of the subnet; invalid: the node does not lead
	Discovered  map[device.PublicKey]netip.AddrPort
	Granularity Granularity
}

// Beat is how often Kilo's agents write LastSeen. Others take a node for gone when it is a minute
// old, so that ours has to write it as long as one of Kilo's is left.
const Beat = 30 * time.Second

// Annotations are those that Kilo's agent would write.
func (o Own) Annotations() map[string]string {
	return map[string]string{
		endpoint:            o.Endpoint.String(),
		internalIP:          prefixText(o.InternalIP),
		key:                 o.Key.String(),
		lastSeen:            strconv.FormatInt(o.LastSeen.Unix(), 10),
		wireGuardIP:         prefixText(o.WireGuardIP),
		discoveredEndpoints: discoveredText(o.Discovered),
		granularity:         string(o.Granularity),
	}
}

// Written are the names of the annotations that an agent writes, and that are to go with it.
func Written() []string {
	return []string{endpoint, internalIP, key, lastSeen, wireGuardIP, discoveredEndpoints, granularity}
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func discoveredText(list map[device.PublicKey]netip.AddrPort) string {
	if len(list) == 0 {
		return ""
	}
	raw := make(map[string]udpAddr, len(list))
	for k, a := range list {
		raw[k.String()] = udpAddr{IP: a.Addr().Unmap().WithZone("").String(), Port: int(a.Port()), Zone: a.Addr().Zone()}
	}
	b, err := json.Marshal(raw) // in the order of the keys
	if err != nil {
		panic("kilo: strings and numbers have no JSON: " + err.Error())
	}
	return string(b)
}
