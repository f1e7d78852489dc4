//go:build linux

package host_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Another network of pods, as flannel's host-gw and vxlan make one: its routes in the main table stay
// as they are, and packets to the pods of other nodes take ours all the same.
func TestRoutesOfAnotherNetworkOfPodsAreKeptAndNotUsed(t *testing.T) {
	r := newRig(t)
	r.node.IP("link add flannel.1 type vxlan id 1 local 192.0.2.1 dstport 8472 nolearning", "link set flannel.1 up",
		"route add 10.2.1.0/24 via 192.0.2.2", "route add fd02:0:0:1::/64 dev flannel.1")
	theirs := func() string {
		return r.run("ip", "route", "show", "table", "main", "10.2.1.0/24") + r.run("ip", "-6", "route", "show", "table", "main", "fd02:0:0:1::/64")
	}
	before := theirs()
	r.apply(plan())
	if diff := cmp.Diff(before, theirs()); diff != "" || before == "" {
		t.Errorf("their routes (-before +after):\n%s", diff)
	}
	for _, dst := range []string{"10.2.1.7", "fd02:0:0:1::7"} {
		if out := r.run("ip", "route", "get", dst); !strings.Contains(out, "dev stillwire0") {
			t.Errorf("to %s: %s", dst, out)
		}
		src := map[bool]string{false: "10.2.0.2", true: "fd02::2"}[strings.Contains(dst, ":")]
		if out := r.run("ip", "route", "get", dst, "from", src, "iif", "pod"); !strings.Contains(out, "dev stillwire0") {
			t.Errorf("from a pod to %s: %s", dst, out)
		}
	}
}
