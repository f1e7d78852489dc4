package device

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// world is a device of which only the owners of prefixes matter: what editConfig must make,
// written the short and slow way.
type world map[PublicKey][]netip.Prefix

func (w world) take(prefix netip.Prefix) {
	for k := range w {
		w[k] = slices.DeleteFunc(w[k], func(p netip.Prefix) bool { return p == prefix })
	}
}

func TestUAPIEditGivesEachPrefixToTheLastWhoAsks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, "c")
		want := world{}
		for _, p := range c.Peers {
			want[p.PublicKey] = slices.Clone(p.AllowedIPs)
		}
		var lines []string
		if rapid.IntRange(0, 4).Draw(t, "replace_peers") == 0 {
			lines = append(lines, "replace_peers=true")
			clear(want)
		}
		for range rapid.IntRange(0, 8).Draw(t, "peers") {
			key := testPeer(8 * byte(rapid.IntRange(3, 6).Draw(t, "peer")))
			lines = append(lines, "public_key="+key.Hex())
			_, there := want[key]
			switch {
			case there:
			case rapid.Bool().Draw(t, "update_only"):
				lines = append(lines, "update_only=true")
			default:
				want[key] = nil
			}
			for range rapid.IntRange(0, 5).Draw(t, "lines") {
				prefix := drawPrefix(t)
				_, there := want[key]
				switch what := rapid.IntRange(0, 9).Draw(t, "line"); {
				case what == 0:
					lines = append(lines, "remove=true")
					delete(want, key)
				case what == 1:
					lines = append(lines, "replace_allowed_ips=true")
					if there {
						want[key] = nil
					}
				case what < 4:
					lines = append(lines, fmt.Sprintf("allowed_ip=-%s", prefix))
					want[key] = slices.DeleteFunc(want[key], func(p netip.Prefix) bool { return p == prefix })
				default:
					lines = append(lines, fmt.Sprintf("allowed_ip=%s", prefix))
					if there {
						want.take(prefix)
						want[key] = append(want[key], prefix)
					}
				}
				if !there {
					delete(want, key)
				}
			}
		}
		edited, err := editConfig(c, lines)
		if err != nil {
			t.Fatal(err)
		}
		edited, err = edited.Normalized()
		if err != nil {
			t.Fatal(err)
		}
		got := world{}
		for _, p := range edited.Peers {
			got[p.PublicKey] = p.AllowedIPs
		}
		for k := range want {
			want[k] = maskedAndSorted(want[k])
		}
		if diff := cmp.Diff(want, got, sameState()); diff != "" {
			t.Fatalf("after %s\n(-want +got):\n%s", strings.Join(lines, "\n"), diff)
		}
	})
}

// The device can do nothing else meanwhile.
func TestUAPIEditOfAFullDeviceTakesNoSecond(t *testing.T) {
	c, err := Config{Peers: idlePeers(MaxPeers)}.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i, p := range c.Peers { // each gets the prefix of the one before
		lines = append(lines, "public_key="+p.PublicKey.Hex(), "replace_allowed_ips=true")
		for _, prefix := range c.Peers[max(i-1, 0)].AllowedIPs {
			lines = append(lines, "allowed_ip="+prefix.String())
		}
	}
	start := time.Now()
	if _, err := editConfig(c, lines); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
}
