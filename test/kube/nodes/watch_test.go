//go:build linux

package nodes

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// watchRules count what nodes send to the fabric. Frames of one node to the other are forwarded by
// the bridge; those of pods without a tunnel go to the default gateway, which is the fabric.
const watchRules = `
table bridge watch {
	counter tunnel { }
	counter other { }
	counter clear { }
	set others { type ipv4_addr . ipv4_addr . inet_proto; flags dynamic; size 1000; }
	set clears { type ipv4_addr . ipv4_addr . inet_proto . inet_service; flags dynamic; size 1000; counter; }
	chain between {
		type filter hook forward priority 0
		ether type arp accept
		meta l4proto ipv6-icmp accept
		ether type ip udp dport 51820 counter name tunnel accept
		icmp type destination-unreachable accept comment "there is no agent just now"
		ether type ip add @others { ip saddr . ip daddr . meta l4proto }
		counter name other
	}
	chain any {
		type filter hook prerouting priority 0
		ip saddr ` + PodCIDR + ` update @clears { ip saddr . ip daddr . meta l4proto . th dport } counter name clear accept
		ip daddr ` + PodCIDR + ` update @clears { ip saddr . ip daddr . meta l4proto . th dport } counter name clear accept
	}
}
`

// watch starts to count, until the test ends.
func watch(t *testing.T) *watcher {
	t.Helper()
	nft(t, watchRules, "-f", "-")
	t.Cleanup(func() { nft(t, "", "delete", "table", "bridge", "watch") })
	return &watcher{t}
}

type watcher struct{ t *testing.T }

// counts are packets on the fabric.
type counts struct {
	Tunnel int // UDP from node to node, to WireGuard's port
	Other  int // else from node to node
	Clear  int // with an address of a pod
}

var packets = regexp.MustCompile(`packets (\d+)`)

func (w *watcher) counts() counts {
	w.t.Helper()
	read := func(name string) int {
		n, err := strconv.Atoi(packets.FindStringSubmatch(nft(w.t, "", "list", "counter", "bridge", "watch", name))[1])
		if err != nil {
			w.t.Fatal(err)
		}
		return n
	}
	return counts{Tunnel: read("tunnel"), Other: read("other"), Clear: read("clear")}
}

// seen says between whom the packets went that were none of the tunnel's.
func (w *watcher) seen() string { return nft(w.t, "", "list", "table", "bridge", "watch") }

// nft runs nft(8) in the fabric, which is where the test process is.
func nft(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
