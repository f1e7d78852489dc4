package device

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// sameState compares states by value, secrets too.
func sameState() cmp.Option {
	return cmp.Options{compareSecrets(), cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })}
}

// drawConfig draws from a small world, so that prefixes nest, move and clash often.
func drawConfig(t *rapid.T, label string) Config {
	c := Config{
		PrivateKey: testKey(byte(8 * rapid.IntRange(1, 2).Draw(t, label+" key"))),
		ListenPort: uint16(rapid.IntRange(1, 2).Draw(t, label+" port")),
		FwMark:     uint32(rapid.IntRange(0, 1).Draw(t, label+" mark")),
	}
	owner := map[netip.Prefix]bool{}
	for i := byte(3); i < 7; i++ {
		if !rapid.Bool().Draw(t, fmt.Sprint(label, " has peer ", i)) {
			continue
		}
		p := PeerConfig{
			PublicKey:           testPeer(8 * i),
			PresharedKey:        drawPSK(t),
			PersistentKeepalive: time.Duration(rapid.IntRange(0, 1).Draw(t, "keepalive")) * 25 * time.Second,
		}
		if n := rapid.IntRange(0, 2).Draw(t, "endpoint"); n > 0 {
			p.Endpoint = Endpoint{Host: fmt.Sprintf("192.0.2.%d", n), Port: 51820}
		}
		for range rapid.IntRange(0, 5).Draw(t, "prefixes") {
			prefix := drawPrefix(t)
			if !owner[prefix] {
				owner[prefix] = true
				p.AllowedIPs = append(p.AllowedIPs, prefix)
			}
		}
		c.Peers = append(c.Peers, p)
	}
	c, err := c.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func drawPrefix(t *rapid.T) netip.Prefix {
	bits := rapid.IntRange(0, 3).Draw(t, "bits")
	addr := netip.AddrFrom4([4]byte{byte(rapid.IntRange(0, 7).Draw(t, "bits of address")) << 5})
	if rapid.IntRange(0, 3).Draw(t, "family") == 0 {
		var b [16]byte
		b[0] = addr.As4()[0]
		addr = netip.AddrFrom16(b)
	}
	return netip.PrefixFrom(addr, bits).Masked()
}

// stateAfter plays operations on a model, as a device would.
func stateAfter(m *model, ops []Op) State {
	for _, op := range ops {
		m.play(op)
	}
	return m.state()
}

func (m *model) play(op Op) {
	m.apply(op)
	switch op.Kind {
	case OpAddPeer, OpSetEndpoint:
		m.peers[op.Peer].path.declared = op.Endpoint
	}
}

func modelOf(c Config) *model {
	m := newModel()
	stateAfter(&m, Diff(State{}, c))
	return &m
}

func TestDiffMakesTheDeviceEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawConfig(t, "a"), drawConfig(t, "b")
		got := stateAfter(modelOf(a), Diff(modelOf(a).state(), b))
		if diff := cmp.Diff(modelOf(b).state(), got, sameState()); diff != "" {
			t.Fatalf("applying Diff(a, b) to a (-b +got):\n%s", diff)
		}
	})
}

// A device that is full makes room before it takes in more, and where it can, of peers whose
// prefixes nobody takes over.
func TestDiffNeverHoldsMorePeersThanItMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawConfig(t, "a"), drawConfig(t, "b")
		limit := max(len(a.Peers), len(b.Peers)) + rapid.IntRange(0, 1).Draw(t, "room")
		m := modelOf(a)
		for n, op := range diff(m.state(), b, limit) {
			if m.play(op); len(m.peers) > limit {
				t.Fatalf("%d peers of %d after operation %d, %s", len(m.peers), limit, n, op.change())
			}
		}
		if diff := cmp.Diff(modelOf(b).state(), m.state(), sameState()); diff != "" {
			t.Fatalf("in the end (-want +got):\n%s", diff)
		}
	})
}

func TestDiffOfAFullDevice(t *testing.T) {
	full := idlePeers(MaxPeers + 2)
	heir, other := full[MaxPeers], full[MaxPeers+1]
	heir.AllowedIPs = full[0].AllowedIPs
	c, err := Config{Peers: full[:MaxPeers]}.Normalized()
	if err != nil {
		t.Fatal(err)
	}
	have := modelOf(c).state()
	for _, tt := range []struct {
		name string
		want []PeerConfig
		ops  []string
	}{
		{"one peer for another", append(slices.Clone(full[1:MaxPeers]), other), []string{
			"remove_peer " + full[0].PublicKey.Short(), "add_peer " + other.PublicKey.Short(), "add_allowed_ip " + other.PublicKey.Short(),
		}},
		{"one peer for its heir", append(slices.Clone(full[1:MaxPeers]), heir), []string{
			"remove_peer " + full[0].PublicKey.Short(), "add_peer " + heir.PublicKey.Short(), "add_allowed_ip " + heir.PublicKey.Short(),
		}},
		{"two for one, that has no heir first", append(slices.Clone(full[2:MaxPeers]), heir), []string{
			"remove_peer " + full[1].PublicKey.Short(), "add_peer " + heir.PublicKey.Short(), "add_allowed_ip " + heir.PublicKey.Short(),
			"remove_peer " + full[0].PublicKey.Short(),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, err := Config{Peers: tt.want}.Normalized()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, op := range Diff(have, want) {
				got = append(got, string(op.Kind)+" "+op.Peer.Short())
			}
			if diff := cmp.Diff(tt.ops, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
		})
	}
}

// A port in use is found out before a new private key ends every session.
func TestDiffSetsTheKeyAfterWhatMayBeRefused(t *testing.T) {
	have := State{PublicKey: testPeer(8), ListenPort: 1}
	var got []OpKind
	for _, op := range Diff(have, Config{PrivateKey: testKey(16), ListenPort: 2, FwMark: 3, Peers: []PeerConfig{{PublicKey: testPeer(24)}}}) {
		got = append(got, op.Kind)
	}
	want := []OpKind{OpSetListenPort, OpSetFwMark, OpSetPrivateKey, OpAddPeer}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestDiffOfEqualIsEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawConfig(t, "a")
		if ops := Diff(modelOf(a).state(), a); len(ops) > 0 {
			t.Fatalf("operations on an unchanged world: %+v", ops)
		}
	})
}

func TestDiffLeavesUntouchedPeersAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawConfig(t, "a"), drawConfig(t, "b")
		for _, op := range Diff(modelOf(a).state(), b) {
			pa, pb := peerIn(a, op.Peer), peerIn(b, op.Peer)
			if !op.Peer.IsZero() && pa != nil && pb != nil && cmp.Equal(pa, pb, sameState()) {
				t.Fatalf("peer is the same in both, but there is %s", op.change())
			}
		}
	})
}

func peerIn(c Config, k PublicKey) *PeerConfig {
	i := slices.IndexFunc(c.Peers, func(p PeerConfig) bool { return p.PublicKey == k })
	if i < 0 {
		return nil
	}
	return &c.Peers[i]
}

// An address that both states route is routed after each operation, by a peer that has it in
// one of them.
func TestDiffNeverUnroutesAnAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawConfig(t, "a"), drawConfig(t, "b")
		m, from, to := modelOf(a), modelOf(a), modelOf(b)
		var probes []netip.Addr
		for i := range 8 {
			probes = append(probes, netip.AddrFrom4([4]byte{byte(i << 5), 1, 2, 3}), netip.AddrFrom16([16]byte{byte(i << 5), 1}))
		}
		for n, op := range Diff(m.state(), b) {
			m.play(op)
			for _, addr := range probes {
				before, after, now := from.routes.lookup(addr), to.routes.lookup(addr), m.routes.lookup(addr)
				if before == nil || after == nil {
					continue
				}
				if now == nil {
					t.Fatalf("%s is unrouted after operation %d, %s", addr, n, op.change())
				}
				if now.key != before.key && now.key != after.key && !covers(a, now.key, addr) && !covers(b, now.key, addr) {
					t.Fatalf("%s went to a stranger after operation %d, %s", addr, n, op.change())
				}
			}
		}
	})
}

func covers(c Config, k PublicKey, addr netip.Addr) bool {
	p := peerIn(c, k)
	return p != nil && slices.ContainsFunc(p.AllowedIPs, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

func TestDiffIsAsSmallAsCanBe(t *testing.T) {
	alice, bob := testPeer(24), testPeer(32)
	if alice.Compare(bob) > 0 {
		alice, bob = bob, alice
	}
	peer := func(k PublicKey, prefixes ...string) PeerConfig {
		p := PeerConfig{PublicKey: k, Source: "test"}
		for _, s := range prefixes {
			p.AllowedIPs = append(p.AllowedIPs, netip.MustParsePrefix(s))
		}
		return p
	}
	for _, tt := range []struct {
		name       string
		have, want []PeerConfig
		uapi       string
		changes    []string
	}{
		{
			name: "prefix moves by one insert",
			have: []PeerConfig{peer(alice, "10.0.0.0/24", "10.1.0.0/24"), peer(bob)},
			want: []PeerConfig{peer(alice, "10.1.0.0/24"), peer(bob, "10.0.0.0/24")},
			uapi: "public_key=" + bob.Hex() + "\nupdate_only=true\nallowed_ip=10.0.0.0/24\n",
			changes: []string{
				"peer " + bob.Short() + ": allowed_ips: +10.0.0.0/24 from peer " + alice.Short() + " [test]",
			},
		},
		{
			name:    "prefix taken away by the minus form",
			have:    []PeerConfig{peer(alice, "10.0.0.0/24", "10.1.0.0/24")},
			want:    []PeerConfig{peer(alice, "10.1.0.0/24")},
			uapi:    "public_key=" + alice.Hex() + "\nupdate_only=true\nallowed_ip=-10.0.0.0/24\n",
			changes: []string{"peer " + alice.Short() + ": allowed_ips: -10.0.0.0/24 [test]"},
		},
		{
			name: "peer replaced by one with the same prefix: made, given the prefix, then the old one removed",
			have: []PeerConfig{peer(alice, "10.0.0.0/24")},
			want: []PeerConfig{peer(bob, "10.0.0.0/24")},
			uapi: "public_key=" + bob.Hex() + "\nallowed_ip=10.0.0.0/24\npublic_key=" + alice.Hex() + "\nupdate_only=true\nremove=true\n",
			changes: []string{
				"peer " + bob.Short() + ": peer: (none) -> endpoint=(none) allowed_ips: [test]",
				"peer " + bob.Short() + ": allowed_ips: +10.0.0.0/24 from peer " + alice.Short() + " [test]",
				"peer " + alice.Short() + ": peer: endpoint=(none) allowed_ips: 10.0.0.0/24 -> (none)",
			},
		},
		{
			name: "prefix split: halves before the whole goes",
			have: []PeerConfig{peer(alice, "10.0.0.0/24")},
			want: []PeerConfig{peer(alice, "10.0.0.0/25", "10.0.0.128/25")},
			uapi: "public_key=" + alice.Hex() + "\nupdate_only=true\nallowed_ip=10.0.0.0/25\nallowed_ip=10.0.0.128/25\nallowed_ip=-10.0.0.0/24\n",
			changes: []string{
				"peer " + alice.Short() + ": allowed_ips: +10.0.0.0/25 [test]",
				"peer " + alice.Short() + ": allowed_ips: +10.0.0.128/25 [test]",
				"peer " + alice.Short() + ": allowed_ips: -10.0.0.0/24 [test]",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			have, _ := Config{Peers: tt.have}.Normalized()
			want, _ := Config{Peers: tt.want}.Normalized()
			ops := Diff(modelOf(have).state(), want)
			if diff := cmp.Diff(tt.uapi, string(appendUAPI(nil, ops, func(Op) netip.AddrPort { return netip.AddrPort{} }))); diff != "" {
				t.Errorf("UAPI text (-want +got):\n%s", diff)
			}
			var lines []string
			for _, c := range Changes(ops) {
				lines = append(lines, c.String())
			}
			if diff := cmp.Diff(tt.changes, lines); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func drawPSK(t *rapid.T) PresharedKey {
	if !rapid.Bool().Draw(t, "psk") {
		return PresharedKey{}
	}
	return testPSK(1)
}
