package agents

import (
	"context"
	"net/netip"
	"regexp"
	"strconv"
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

// Pods reach a machine through a service's address too, and what is no pod of the mesh (here a
// container behind a bridge of its own, as Docker has them) goes to machines as it did before.
//
//	pod ───────┐
//	container ─┴ ada ── router ── ben
func TestServicesAndContainersReachMachines(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.machine("ada", "berlin"), w.machine("ben", "oslo")
	container := w.lab.Namespace("box")
	w.lab.Connect(ada.Namespace, container)
	ada.AddAddrs("box", "172.17.0.1/24")
	container.AddAddrs("ada", "172.17.0.2/24")
	container.IP("route add default via 172.17.0.1")
	ada.NFT("add table ip others",
		"add chain ip others before { type nat hook prerouting priority dstnat ; }", "add rule ip others before ip daddr 10.96.0.1 dnat to "+ben.addr.String(),
		"add chain ip others after { type nat hook postrouting priority srcnat ; }", "add rule ip others after ip saddr 172.17.0.0/24 masquerade")
	w.startAll(append([]string{"--topology", "full", "--service-cidr", "10.96.0.0/12"}, ranges...)...)
	w.connected(4, 6)
	for _, tt := range []struct {
		name   string
		from   *netns.Namespace
		dst    string
		tunnel bool
	}{
		{"a pod, to the machine", ada.pod, ben.addr.String(), true},
		{"a pod, to a service that the machine serves", ada.pod, "10.96.0.1", true},
		{"a container, to the machine", container, ben.addr.String(), false},
	} {
		before := ada.crossed(t)
		if err := tt.from.AwaitPing(netip.MustParseAddr(tt.dst)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := ada.crossed(t) > before; got != tt.tunnel {
			t.Errorf("%s: by the tunnel %t, want %t", tt.name, got, tt.tunnel)
		}
	}
}

// crossed counts the packets of pods that were turned to nodes by the tunnel.
func (m *machine) crossed(t *testing.T) (packets int) {
	t.Helper()
	out, err := run(m.Namespace, "nft", "list", "chain", "inet", "stillwire", "turn")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`counter packets (\d+)`).FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(found[1]) // digits they are
		packets += n
	}
	return packets
}
