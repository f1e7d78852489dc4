package kube

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// mostLearned is how many learned endpoints a status holds, those with the first keys for all: an
// object of a cluster must stay small.
const mostLearned = 4096

// statusOf is what the agent publishes, as the object has it. Conditions are another's.
func statusOf(s mesh.NodeStatus) v1alpha1.MeshNodeStatus {
	out := v1alpha1.MeshNodeStatus{
		Mode:          string(s.Mode),
		ListenPort:    int32(s.ListenPort),
		InternalIPs:   texts(s.InternalIPs),
		Endpoints:     texts(s.Endpoints),
		MeshAddresses: texts(s.MeshAddresses),
		Leads:         int64(min(s.Leads, math.MaxInt64)),
		Unreachable:   s.Unreachable,
	}
	if !s.PublicKey.IsZero() {
		out.PublicKey = s.PublicKey.String()
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.Learned), device.PublicKey.Compare) {
		if len(out.Learned) == mostLearned {
			break
		}
		out.Learned = append(out.Learned, v1alpha1.LearnedEndpoint{PublicKey: key.String(), Endpoint: s.Learned[key].String()})
	}
	return out
}

func texts[T fmt.Stringer](list []T) (out []string) {
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}
