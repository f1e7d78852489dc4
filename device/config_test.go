package device

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// testKey is a private key made of one byte, and testPeer the public key of another.
func testKey(b byte) PrivateKey { return newPrivateKey([KeyLen]byte{1: b, 31: 64}) }
func testPeer(b byte) PublicKey { return testKey(b).Public() }
func testPSK(b byte) PresharedKey {
	return PresharedKey{newSecret([KeyLen]byte{b, 1, 2, 3})}
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func compareSecrets() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b PrivateKey) bool { return a.Equal(b) }),
		cmp.Comparer(func(a, b PresharedKey) bool { return a.Equal(b) }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
}

func TestNormalizedSortsPeersAndPrefixes(t *testing.T) {
	low, high := testPeer(1), testPeer(2)
	if low.Compare(high) > 0 {
		low, high = high, low
	}
	given := Config{
		PrivateKey: testKey(9), ListenPort: 51820, FwMark: 1,
		Peers: []PeerConfig{
			{PublicKey: high, Endpoint: Endpoint{"VPN.example", 1}, PersistentKeepalive: 25 * time.Second, Name: "b"},
			{PublicKey: low, PresharedKey: testPSK(1), Source: "wg0.conf:3", AllowedIPs: prefixes(
				"fd00::1/64", "10.0.0.7/24", "10.0.0.0/24", "10.0.0.0/8", "::ffff:192.0.2.1/120", "0.0.0.0/0")},
		},
	}
	before := fmt.Sprint(given)
	got, err := given.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		PrivateKey: testKey(9), ListenPort: 51820, FwMark: 1,
		Peers: []PeerConfig{
			{PublicKey: low, PresharedKey: testPSK(1), Source: "wg0.conf:3", AllowedIPs: prefixes(
				"0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "192.0.2.0/24", "fd00::/64")},
			{PublicKey: high, Endpoint: Endpoint{"vpn.example", 1}, PersistentKeepalive: 25 * time.Second, Name: "b", AllowedIPs: []netip.Prefix{}},
		},
	}
	if diff := cmp.Diff(want, got, compareSecrets()); diff != "" {
		t.Errorf("normalized (-want +got):\n%s", diff)
	}
	if after := fmt.Sprint(given); after != before {
		t.Errorf("the caller's Config was changed from %s to %s", before, after)
	}
}

func TestNormalizedNamesEverythingThatCannotBeObeyed(t *testing.T) {
	a, b := testPeer(1), testPeer(2)
	for _, tt := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"nothing at all is fine", Config{}, nil},
		{"a peer without a key",
			Config{Peers: []PeerConfig{{Source: "a.conf:1"}, {Name: "lap"}}},
			[]string{"peer AAAAAAAA… (a.conf:1): PublicKey is missing", "peer AAAAAAAA… (lap): PublicKey is missing"}},
		{"its own key",
			Config{PrivateKey: testKey(1), Peers: []PeerConfig{{PublicKey: a}}},
			[]string{"peer " + a.String() + ": PublicKey " + a.String() + " is this device's own key: remove the peer"}},
		{"one key twice",
			Config{Peers: []PeerConfig{{PublicKey: a, Name: "one", Source: "x:1"}, {PublicKey: a, Name: "two", Source: "x:9"}}},
			[]string{"peer " + a.Short() + " (two, x:9): PublicKey " + a.String() + " is the key of peer " + a.Short() + " (one, x:1) too: merge the two"}},
		{"keepalives",
			Config{Peers: []PeerConfig{{PublicKey: a, PersistentKeepalive: -time.Second}}},
			[]string{"peer " + a.String() + ": PersistentKeepalive -1s must be whole seconds from 0 to 65535"}},
		{"half a second",
			Config{Peers: []PeerConfig{{PublicKey: a, PersistentKeepalive: 1500 * time.Millisecond}}},
			[]string{"peer " + a.String() + ": PersistentKeepalive 1.5s must be whole seconds from 0 to 65535"}},
		{"an hour too long",
			Config{Peers: []PeerConfig{{PublicKey: a, PersistentKeepalive: 65536 * time.Second}}},
			[]string{"peer " + a.String() + ": PersistentKeepalive 18h12m16s must be whole seconds from 0 to 65535"}},
		{"an endpoint that is none",
			Config{Peers: []PeerConfig{{PublicKey: a, Endpoint: Endpoint{"vpn.example", 0}}}},
			[]string{"peer " + a.String() + ": Endpoint vpn.example:0 has a port that is not a number from 1 to 65535"}},
		{"prefixes that are none, in two peers",
			Config{Peers: []PeerConfig{{PublicKey: a, AllowedIPs: make([]netip.Prefix, 2)}}},
			[]string{"peer " + a.String() + ": AllowedIPs invalid Prefix is not a prefix"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.config.Normalized()
			if diff := cmp.Diff(tt.want, lines(err)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a prefix with two owners names both", func(t *testing.T) {
		_, err := Config{Peers: []PeerConfig{
			{PublicKey: a, Name: "one", AllowedIPs: prefixes("10.0.0.1/24", "10.0.0.2/24")},
			{PublicKey: b, Name: "two", AllowedIPs: prefixes("10.0.0.9/24")},
		}}.Normalized()
		text := fmt.Sprint(err)
		for _, part := range []string{"AllowedIPs 10.0.0.0/24 is claimed by peer", "(one)", "(two)", "give it to one of them"} {
			if strings.Count(text, part) != 1 {
				t.Errorf("%q does not stand once in %q", part, text)
			}
		}
		var problem *ConfigError
		if !errors.As(err, &problem) || problem.Field != "AllowedIPs" || problem.Value != "10.0.0.0/24" {
			t.Errorf("error is %#v", err)
		}
	})
	t.Run("one peer more than a device can hold", func(t *testing.T) {
		peers := make([]PeerConfig, MaxPeers+1)
		for i := range peers {
			peers[i].PublicKey = PublicKey{byte(i), byte(i >> 8), byte(i >> 16), 1}
		}
		_, err := Config{Peers: peers}.Normalized()
		want := []string{"device: Peers 65537 peers are more than the 65536 a device can hold"}
		if diff := cmp.Diff(want, lines(err)); diff != "" {
			t.Errorf("errors (-want +got):\n%s", diff)
		}
	})
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestNormalizedDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := Config{}
		for i := range rapid.IntRange(0, 6).Draw(t, "peers") {
			p := PeerConfig{PublicKey: PublicKey{byte(i + 1)}, PersistentKeepalive: time.Duration(i) * time.Second}
			for j := range rapid.IntRange(0, 4).Draw(t, "prefixes") {
				p.AllowedIPs = append(p.AllowedIPs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j), 7}), 24))
			}
			config.Peers = append(config.Peers, p)
		}
		want, err := config.Normalized()
		if err != nil {
			t.Fatal(err)
		}
		shuffled := Config{Peers: rapid.Permutation(config.Peers).Draw(t, "order")}
		for i := range shuffled.Peers {
			shuffled.Peers[i].AllowedIPs = rapid.Permutation(slices.Clone(shuffled.Peers[i].AllowedIPs)).Draw(t, "prefix order")
		}
		for _, c := range []Config{shuffled, want} {
			got, err := c.Normalized()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compareSecrets()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	})
}
