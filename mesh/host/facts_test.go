//go:build linux

package host_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stillwire/stillwire/mesh"
)

func (r *rig) facts() (f mesh.HostFacts) {
	r.t.Helper()
	err := r.node.Do(func() (err error) {
		f, err = r.host.Facts()
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, addr(text))
	}
	return out
}

func TestFactsAreThoseOfTheMachine(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	r.node.IP(
		"addr add 100.64.3.4/32 dev lan", "addr add 10.9.9.9/24 dev lan", "addr add fd77::1/64 dev lan nodad",
		"addr add 2001:db8::99/64 dev lan nodad preferred_lft 0",
		"link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0",
		"link add cni0 type bridge", "addr add 10.244.0.1/24 dev cni0",
	)
	want := mesh.HostFacts{
		InternalIPs: addrs("192.0.2.1", "2001:db8::1", "10.2.0.1", "10.9.9.9", "100.64.3.4", "fd02::1", "fd77::1"),
		Global:      addrs("192.0.2.1", "2001:db8::1"),
		Links: prefixes("10.2.0.0/24", "10.9.9.0/24", "10.244.0.0/24", "100.64.3.4/32", "172.17.0.0/16", "192.0.2.0/24",
			"2001:db8::/64", "fd02::/64", "fd77::/64"),
	}
	sorted := cmpopts.SortSlices(netip.Addr.Less)
	if diff := cmp.Diff(want, r.facts(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), sorted); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	if got := r.facts().InternalIPs[:2]; got[0] != addr("192.0.2.1") || got[1] != addr("2001:db8::1") {
		t.Errorf("what the default route takes is not first: %v", got)
	}
	if got := r.facts().InternalIPs[2:]; got[0] != addr("10.2.0.1") {
		t.Errorf("private IPv4 does not come next: %v", got)
	}
}

func TestRunTellsOfAChangedMachineAndOfNothingElse(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	k := r.keep(plan())
	k.quiet()
	looks := k.looks.Load()
	r.node.IP("link add br7 type bridge", "link set br7 up", "route add 10.55.0.0/16 via 192.0.2.9", "link set lan txqueuelen 777")
	k.quiet()
	if n := k.looks.Load() - looks; n != 0 {
		t.Errorf("%d looks for what concerns nobody", n)
	}
	for _, change := range []string{"addr add 192.0.2.77/24 dev lan", "link set lan mtu 1400", "route del default"} {
		before := k.looks.Load()
		r.node.IP(change)
		begun := time.Now()
		for k.looks.Load() == before {
			if time.Since(begun) > 5*time.Second {
				t.Fatalf("%s: nobody was told", change)
			}
			<-time.After(10 * time.Millisecond)
		}
		k.quiet()
	}
}
