package netstack

import (
	"net/netip"
	"testing"

	"github.com/stillwire/stillwire/device"
)

// node is a Net with what others need to know to be its peer.
type node struct {
	*Net
	key  device.PrivateKey
	port uint16
	ips  []netip.Prefix
}

// openNode opens a Net with a key and no peers on a port of 127.0.0.1.
func openNode(t testing.TB, o Options) *node {
	t.Helper()
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	o.Config.PrivateKey = key
	n, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	state, err := n.State()
	if err != nil {
		t.Fatal(err)
	}
	return &node{n, key, state.ListenPort, o.Addresses}
}

// as is the configuration of a peer that is n.
func (n *node) as(name string) device.PeerConfig {
	return device.PeerConfig{
		PublicKey:  n.key.Public(),
		Endpoint:   device.EndpointFrom(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), n.port)),
		AllowedIPs: n.ips,
		Name:       name,
	}
}

// peered are two Nets that are each other's peer. They have made no handshake yet.
func peered(t testing.TB) (a, b *node) {
	t.Helper()
	a = openNode(t, Options{Name: "a", Addresses: prefixes(addrA4, addrA6)})
	b = openNode(t, Options{Name: "b", Addresses: prefixes(addrB4, addrB6)})
	introduce(t, a, b)
	return a, b
}

func introduce(t testing.TB, a, b *node) {
	t.Helper()
	if _, err := a.SetPeers(t.Context(), b.as("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetPeers(t.Context(), a.as("a")); err != nil {
		t.Fatal(err)
	}
}
