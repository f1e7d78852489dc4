//go:build linux

package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2/maybe"

	"github.com/stillwire/stillwire/mesh"
)

// The names in a CNI configuration of ours.
const (
	cniName   = "stillwire"
	cniBridge = "stillwire-pods" // the link that pods hang on, made by the plugin
)

// cniList is a configuration of the Container Network Interface 1.0.0 for a node that has no network
// of pods but ours: the reference plugins bridge, host-local and portmap.
type cniList struct {
	CNIVersion string      `json:"cniVersion"`
	Name       string      `json:"name"`
	Plugins    []cniPlugin `json:"plugins"`
}

type cniPlugin struct {
	Type         string          `json:"type"`
	Bridge       string          `json:"bridge,omitempty"`
	IsGateway    bool            `json:"isGateway,omitempty"`
	HairpinMode  bool            `json:"hairpinMode,omitempty"` // a pod reaches itself by a Service
	MTU          int             `json:"mtu,omitempty"`
	IPAM         *cniIPAM        `json:"ipam,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

type cniIPAM struct {
	Type   string       `json:"type"`
	Ranges [][]cniRange `json:"ranges"` // one list of each family
	Routes []cniRoute   `json:"routes"`
}

type cniRange struct {
	Subnet netip.Prefix `json:"subnet"`
}

type cniRoute struct {
	Dst netip.Prefix `json:"dst"`
}

// cniText is the file for pods of these ranges, whose packets must fit the tunnel.
func cniText(pods []netip.Prefix, mtu int) []byte {
	ipam := &cniIPAM{Type: "host-local"}
	for _, is4 := range []bool{true, false} {
		var ranges []cniRange
		for _, p := range pods {
			if p.Addr().Is4() == is4 {
				ranges = append(ranges, cniRange{p})
			}
		}
		if len(ranges) == 0 {
			continue
		}
		ipam.Ranges = append(ipam.Ranges, ranges)
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if is4 {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		ipam.Routes = append(ipam.Routes, cniRoute{all})
	}
	text, err := json.MarshalIndent(cniList{CNIVersion: "1.0.0", Name: cniName, Plugins: []cniPlugin{
		{Type: "bridge", Bridge: cniBridge, IsGateway: true, HairpinMode: true, MTU: mtu, IPAM: ipam},
		{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}},
	}}, "", "  ")
	if err != nil {
		panic("host: strings and numbers have no JSON: " + err.Error())
	}
	return append(text, '\n')
}

// cniSteps write the file when it differs. A node whose pods are not known yet keeps what it has: an
// empty one would take the network away from the pods that run.
func (o Options) cniSteps(plan mesh.HostPlan, mtu int) []step {
	pods := plan.Firewall.Pods
	if o.CNIFile == "" || len(pods) == 0 {
		return nil
	}
	text := cniText(pods, mtu)
	have, err := os.ReadFile(o.CNIFile)
	switch {
	case err == nil && bytes.Equal(have, text):
		return nil
	case err == nil && !ownCNI(have):
		return []step{failing("cniFile", &problemError{mesh.HostConflict, o.CNIFile + " is another program's, it is left as it is", "name a file that sorts before it, or remove it"})}
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return []step{failing("cniFile", fmt.Errorf("read the CNI configuration: %w", err))}
	}
	was := ""
	if err == nil {
		was = "there"
	}
	return []step{{
		changes: []mesh.HostChange{{What: "cni", Name: o.CNIFile, Old: was, New: fmt.Sprintf("pods %s mtu %d", prefixTexts(pods), mtu)}},
		field:   "cniFile",
		do:      func(*kernel) error { return writeCNI(o.CNIFile, text) },
	}}
}

func prefixTexts(list []netip.Prefix) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return strings.Join(words, " ")
}

// writeCNI puts the file there in one step: a runtime never reads half of it.
func writeCNI(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	if err := maybe.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	return nil
}

// ownCNI reports whether a configuration is one that we wrote.
func ownCNI(text []byte) bool {
	var list cniList
	return json.Unmarshal(text, &list) == nil && list.Name == cniName
}

// removeCNI takes our file away, and leaves another's.
func (o Options) removeCNI() []step {
	if o.CNIFile == "" {
		return nil
	}
	text, err := os.ReadFile(o.CNIFile)
	if err != nil || !ownCNI(text) {
		return nil
	}
	return []step{{
		changes: []mesh.HostChange{{What: "cni", Name: o.CNIFile, Old: "there"}}, field: "cniFile",
		do: func(*kernel) error { return os.Remove(o.CNIFile) },
	}}
}
