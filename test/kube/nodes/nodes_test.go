//go:build linux

package nodes

import "testing"

func TestNodesAreReady(t *testing.T) {
	out, _, err := shared.Kubectl(t, "get", "nodes", "-o", "wide")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out)
	for _, n := range two.list {
		out, err := n.Exec(t.Context(), "sh", "-c", "hostname; ps ax; ip addr; cat /proc/self/cgroup; mount | tail -30; ctr -n k8s.io i ls -q; nft list ruleset")
		t.Log(out, err)
	}
}
