package agents

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stillwire/stillwire/test/netns"
)

// ranges are those of the mesh as a whole, see newWorld.
var ranges = []string{"--subnet", "10.4.0.0/16", "--subnet", "fd04::/64", "--cluster-cidr", "10.42.0.0/16", "--cluster-cidr", "fd42::/16"}

// Six machines in three locations:
//
//	pod ── ada ─┬─ berlin ─┐          ┌─ rome ─┬─ emil ── pod
//	pod ── ben ─┘          ├─ router ─┤        └─ fay ─── pod
//	        pod ── cleo ─┬─ oslo ─────┘
//	        pod ── dora ─┘
func TestEveryPodReachesEveryOther(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
	}{
		{"full", []string{"--topology", "full"}},
		{"cross", []string{"--topology", "cross"}},
		{"location", []string{"--topology", "location"}},
		{"location, VXLAN inside", []string{"--topology", "location", "--inside", "vxlan"}},
		{"location, encrypted inside", []string{"--topology", "location", "--inside", "encrypted"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for i, name := range []string{"ada", "ben", "cleo", "dora", "emil", "fay"} {
				w.machine(name, []string{"berlin", "oslo", "rome"}[i/2])
			}
			w.startAll(append(tt.flags, ranges...)...)
			w.connected(4, 6)
			w.machinesReached()
			ada, fay := w.machines[0], w.machines[5]
			if report, err := netns.Exchange(context.Background(), ada.pod, fay.Namespace, netip.AddrPortFrom(fay.addr, 0), 1<<20, 0); err != nil {
				t.Errorf("TCP from the pod of ada to the machine fay: %v (%s)", err, report)
			}
			for _, family := range []int{4, 6} {
				report, err := netns.Exchange(context.Background(), fay.pod, ada.pod, netip.AddrPortFrom(ada.podAddr(family), 0), 1<<20, 0)
				if err != nil {
					t.Errorf("TCP from fay to ada, IPv%d: %v (%s)", family, err, report)
				}
			}
		})
	}
}
