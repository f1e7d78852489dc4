package file

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// orNothing leaves out a part that says nothing.
func orNothing(part any) any {
	if part == nil || reflect.ValueOf(part).IsZero() {
		return nil
	}
	return part
}

func settingsDocument(s mesh.Settings) meshSpec {
	return meshSpec{
		Topology:          string(s.Topology),
		Inside:            string(s.Inside),
		Subnets:           texts(s.Subnets),
		ClusterCIDRs:      texts(s.ClusterCIDRs),
		ServiceCIDRs:      texts(s.ServiceCIDRs),
		IgnoreInternalIPs: s.IgnoreInternalIPs,
		AllowDefaultRoute: s.AllowDefaultRoute,
	}
}

func specDocument(n mesh.Node) nodeSpec {
	s := nodeSpec{
		Location:            n.Spec.Location,
		Leader:              n.Spec.Leader,
		Endpoint:            n.Spec.Endpoint.String(),
		InternalIPs:         texts(n.Spec.InternalIPs),
		PersistentKeepalive: seconds(n.Spec.PersistentKeepalive),
		ExtraPrefixes:       texts(n.Spec.ExtraPrefixes),
		PodCIDRs:            texts(n.PodCIDRs),
		ListenPort:          n.Spec.ListenPort,
		MTU:                 n.Spec.MTU,
		NodeIPs:             texts(n.NodeIPs),
		NotReady:            n.NotReady,
	}
	if n.Spec.NoInternalIP {
		s.InternalIPs = []string{none}
	}
	return s
}

func statusDocument(s mesh.NodeStatus) nodeStatus {
	out := nodeStatus{
		Mode:          string(s.Mode),
		ListenPort:    s.ListenPort,
		InternalIPs:   texts(s.InternalIPs),
		Endpoints:     texts(s.Endpoints),
		MeshAddresses: texts(s.MeshAddresses),
		Leads:         s.Leads,
		Unreachable:   s.Unreachable,
	}
	if !s.PublicKey.IsZero() {
		out.PublicKey = s.PublicKey.String()
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.Learned), device.PublicKey.Compare) {
		out.Learned = append(out.Learned, learned{key.String(), s.Learned[key].String()})
	}
	return out
}

func peerDocument(p mesh.Peer) peerSpec {
	return peerSpec{
		PublicKey:           p.PublicKey.String(),
		Endpoint:            p.Endpoint.String(),
		AllowedIPs:          texts(p.AllowedIPs),
		PersistentKeepalive: seconds(p.PersistentKeepalive),
		MeshAddresses:       texts(p.MeshAddresses),
	}
}

func texts[T fmt.Stringer](values []T) (out []string) {
	for _, v := range values {
		out = append(out, v.String())
	}
	return out
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
