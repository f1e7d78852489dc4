package kube

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// SettingsName is the ConfigMap, in the namespace of the agents, that says what all nodes of the
// mesh must agree on. Its keys are:
//
//	topology           full, location or cross
//	inside             native, vxlan, ipip, geneve or encrypted
//	subnets            of mesh addresses
//	clusterCIDRs       of the pods of all nodes
//	serviceCIDRs       of services
//	ignoreInternalIPs  true or false
//	allowDefaultRoute  true or false
//
// Lists have commas or blanks between. It is taken whole or not at all, and what it leaves open is
// what the flags of an agent say.
const SettingsName = "stillwire"

// readSettings makes settings of the ConfigMap. ok is false when it cannot be obeyed.
func readSettings(c *corev1.ConfigMap) (s mesh.Settings, ok bool, problems []mesh.Problem) {
	r := &reading{subject: mesh.Subject{Kind: mesh.KindMesh, Name: c.Name, Source: "configmap/" + c.Name}}
	for key, text := range c.Data {
		text = strings.TrimSpace(text)
		if read := settingsFields(r, &s)[key]; read != nil {
			if text != "" {
				read(key, text)
			}
			continue
		}
		r.refuseSetting(key, "", scan.Bad("is no setting", scan.Meant(key, settingsNames())))
	}
	slices.SortFunc(r.problems, func(a, b mesh.Problem) int { return strings.Compare(a.Field, b.Field) })
	return s, !r.lost, r.problems
}

func settingsFields(r *reading, s *mesh.Settings) map[string]func(key, text string) {
	return map[string]func(key, text string){
		"topology":          setting(r, &s.Topology, scan.Topology),
		"inside":            setting(r, &s.Inside, scan.Encapsulation),
		"subnets":           settingList(r, &s.Subnets, scan.Prefix),
		"clusterCIDRs":      settingList(r, &s.ClusterCIDRs, scan.Prefix),
		"serviceCIDRs":      settingList(r, &s.ServiceCIDRs, scan.Prefix),
		"ignoreInternalIPs": setting(r, &s.IgnoreInternalIPs, scan.Bool),
		"allowDefaultRoute": setting(r, &s.AllowDefaultRoute, scan.Bool),
	}
}

func settingsNames() (names []string) {
	for name := range settingsFields(nil, &mesh.Settings{}) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (r *reading) refuseSetting(key, value string, f *scan.Fault) {
	r.lost = true
	r.report("data."+scan.Shown(key), scan.Shown(value), f, "the settings stay as they were")
}

func setting[T any](r *reading, to *T, parse func(string) (T, *scan.Fault)) func(key, text string) {
	return func(key, text string) {
		value, f := parse(text)
		if f != nil {
			r.refuseSetting(key, text, f)
		}
		*to = value
	}
}

func settingList(r *reading, to *[]netip.Prefix, parse func(string) (netip.Prefix, *scan.Fault)) func(key, text string) {
	return func(key, text string) {
		for _, word := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' || c == '\t' }) {
			value, f := parse(word)
			if f != nil {
				r.refuseSetting(key, word, f)
			}
			*to = append(*to, value)
		}
	}
}
