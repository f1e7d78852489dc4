//go:build linux

package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

const goodKey = "yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM="

// What no device or mesh could obey is refused at the door, with the remedy.
func TestBadObjectsAreRefusedWithTheirRemedy(t *testing.T) {
	peer := func(spec string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: bad}\nspec: {%s}\n", v1alpha1.GroupVersion(), spec)
	}
	node := func(spec string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: MeshNode\nmetadata: {name: bad}\nspec: {%s}\n", v1alpha1.GroupVersion(), spec)
	}
	const key = "publicKey: " + goodKey + ", "
	for _, tt := range []struct{ name, object, want string }{
		{"no key", peer("allowedIPs: [10.9.0.0/24]"), "spec.publicKey: Required"},
		{"short key", peer("publicKey: abc, allowedIPs: [10.9.0.0/24]"), "wg pubkey prints"},
		{"key that is no key", peer("publicKey: " + strings.Repeat("A", 42) + "B=, allowedIPs: [10.9.0.0/24]"), "wg pubkey prints"},
		{"zero key", peer("publicKey: " + strings.Repeat("A", 43) + "=, allowedIPs: [10.9.0.0/24]"), "all zero is no key"},
		{"nothing to send", peer("publicKey: " + goodKey), "write meshAddresses, allowedIPs or both"},
		{"no CIDR", peer(key + "allowedIPs: [10.9.0.0/33]"), "write CIDRs, such as 10.9.0.0/24"},
		{"loopback", peer(key + "allowedIPs: [127.0.0.0/8]"), "loopback and link-local addresses cannot be in a tunnel"},
		{"link-local", peer(key + "allowedIPs: ['fe80::/64']"), "loopback and link-local addresses cannot be in a tunnel"},
		{"mesh address with a length", peer(key + "meshAddresses: [10.4.7.7/32]"), "without a length"},
		{"endpoint without a port", peer(key + "allowedIPs: [10.9.0.0/24], endpoint: a.example"), "write host:port"},
		{"endpoint of IPv6 without brackets", peer(key + "allowedIPs: [10.9.0.0/24], endpoint: '2001:db8::1:51820'"), "write host:port"},
		{"keepalive", peer(key + "allowedIPs: [10.9.0.0/24], persistentKeepalive: 65536"), "less than or equal to 65535"},
		{"secret in the object", peer(key + "allowedIPs: [10.9.0.0/24], presharedKey: " + goodKey), "presharedKey"},
		{"unknown field", peer(key + "allowedIPs: [10.9.0.0/24], allowedIps: []"), "unknown field"},
		{"node endpoint", node("endpoint: '192.0.2.1'"), "write host:port"},
		{"node internal IP", node("internalIPs: [10.0.0.1/24]"), "or none alone: [none]"},
		{"node with none and one", node("internalIPs: [none, 10.0.0.1]"), "or none alone: [none]"},
		{"node MTU", node("mtu: 100"), "from 576 to 65455"},
		{"node port", node("listenPort: 70000"), "less than or equal to 65535"},
		{"node prefixes", node("extraPrefixes: [all]"), "write CIDRs"},
		{"node pod CIDRs", node("podCIDRs: [10.0.0.1]"), "write CIDRs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := shared.ApplyAll(t.Context(), tt.object)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestGoodObjectsAreTaken(t *testing.T) {
	shared.Apply(t, fmt.Sprintf(`
apiVersion: %[1]s
kind: Peer
metadata: {name: good}
spec:
  publicKey: %[2]s
  allowedIPs: [10.9.0.0/24, fd00:9::/64, 10.9.1.1, "0.0.0.0/0"]
  meshAddresses: [10.4.7.7]
  endpoint: "[2001:db8::1]:51820"
  persistentKeepalive: 25
  presharedKey: {name: good}
---
apiVersion: %[1]s
kind: MeshNode
metadata: {name: good}
spec:
  location: ""
  leader: true
  endpoint: node.example:51820
  internalIPs: [none]
  persistentKeepalive: 0
  extraPrefixes: [192.168.7.0/24]
  podCIDRs: [10.42.200.0/24]
  listenPort: 51821
  mtu: 1380
`, v1alpha1.GroupVersion(), goodKey))
	for _, args := range []string{"get peers.stillwire.dev", "get swpeer good -o wide", "get mnode", "get meshnodes -o wide", "get stillwire"} {
		out, _, err := shared.Kubectl(t, strings.Fields(args)...)
		if err != nil || !strings.Contains(out, "good") {
			t.Errorf("kubectl %s: %q, %v", args, out, err)
		}
	}
	if _, _, err := shared.Kubectl(t, "delete", "stillwire", "--all"); err != nil {
		t.Error(err)
	}
}
