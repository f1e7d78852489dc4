package kilo

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/mesh"
)

const someKey = "H3r4XpU7dEKP71tXeJvJAi/UyPkxnanSmo59OR72CzY="

// What Kilo passes over in silence is read as Kilo reads it, and named.
func TestTrapsOfAnnotationsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		read        func(n Node) any
		want        any
		problem     string // "": none
	}{
		{"endpoint", map[string]string{forceEndpoint: "[2001:db8::5]:51820"}, func(n Node) any { return n.Endpoint.String() }, "[2001:db8::5]:51820", ""},
		{"endpoint without a port", map[string]string{forceEndpoint: "203.0.113.10", endpoint: "198.51.100.1:51820"}, func(n Node) any { return n.Endpoint.String() }, "198.51.100.1:51820",
			`node a (node/a): metadata.annotations[kilo.squat.ai/force-endpoint] "203.0.113.10" is no endpoint, the one that the node found is used: write it with its port, such as 203.0.113.7:51820`},
		{"endpoint of a name", map[string]string{forceEndpoint: "vpn.example.com:51820"}, func(n Node) any { return n.Declared }, true, ""},
		{"internal IP", map[string]string{forceInternalIP: "10.1.0.5/24"}, func(n Node) any { return n.InternalIP.String() }, "10.1.0.5/24", ""},
		{"internal IP without a mask", map[string]string{forceInternalIP: "192.168.7.8", internalIP: "10.1.0.9/24"}, func(n Node) any { return n.InternalIP.String() }, "10.1.0.9/24",
			`node a (node/a): metadata.annotations[kilo.squat.ai/force-internal-ip] "192.168.7.8" is no address with a mask, the one that the node found is used: write it with the mask of its link, such as 10.1.0.5/24`},
		{"no internal IP", map[string]string{forceInternalIP: "-", internalIP: "10.1.0.9/24"}, func(n Node) any { return n.InternalIP.IsValid() }, false, ""},
		{"leader", map[string]string{leader: ""}, func(n Node) any { return n.Leader }, true, ""},
		{"leader, or so it is not meant", map[string]string{leader: "false"}, func(n Node) any { return n.Leader }, true,
			`node a (node/a): metadata.annotations[kilo.squat.ai/leader] "false" makes the node a leader all the same: remove the annotation`},
		{"location that is empty", map[string]string{location: ""}, func(n Node) any { return n.Location }, "", ""},
		{"location of the label", nil, func(n Node) any { return n.Location }, "eu", ""},
		{"keepalive", map[string]string{persistentKeepalive: "25"}, func(n Node) any { return n.PersistentKeepalive }, 25 * time.Second, ""},
		{"keepalive with a unit", map[string]string{persistentKeepalive: "25s"}, func(n Node) any { return n.PersistentKeepalive }, time.Duration(0),
			`node a (node/a): metadata.annotations[kilo.squat.ai/persistent-keepalive] "25s" is no number of seconds from 0 to 65535, none is sent: write it without a unit, such as 25`},
		{"prefixes with blanks", map[string]string{allowedLocationIPs: "10.0.0.0/24, 10.0.1.0/24"}, func(n Node) any { return len(n.AllowedLocationIPs) }, 1,
			`node a (node/a): metadata.annotations[kilo.squat.ai/allowed-location-ips] " 10.0.1.0/24" is no prefix, it is ignored: write prefixes with commas and no blanks between, such as 10.1.2.0/24,10.1.3.4/32`},
		{"prefix of everything", map[string]string{allowedLocationIPs: "0.0.0.0/0"}, func(n Node) any { return len(n.AllowedLocationIPs) }, 1,
			`node a (node/a): metadata.annotations[kilo.squat.ai/allowed-location-ips] "0.0.0.0/0" takes all traffic of all other locations: name the ranges that are meant`},
		{"key", map[string]string{key: "short"}, func(n Node) any { return n.Key.IsZero() }, true,
			`node a (node/a): metadata.annotations[kilo.squat.ai/key] is no public key, the node is left out: restart the agent of the node, which writes it`},
		{"discovered endpoints", map[string]string{discoveredEndpoints: "{"}, func(n Node) any { return len(n.Discovered) }, 0,
			`node a (node/a): metadata.annotations[kilo.squat.ai/discovered-endpoints] is not what agents write (unexpected end of JSON input), it is ignored: remove the annotation, the agent writes it anew`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, problems := ReadNode(NodeObject{Name: "a", Labels: map[string]string{DefaultLocationLabel: "eu"}, Annotations: tt.annotations}, DefaultLocationLabel)
			if got := tt.read(n); got != tt.want {
				t.Errorf("read as %v, want %v", got, tt.want)
			}
			wantProblem(t, problems, tt.problem)
		})
	}
}

func TestTrapsOfPeersAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name, spec, problem string
		ready               bool
	}{
		{"all", `{"allowedIPs":["10.5.0.2/32"],"publicKey":"` + someKey + `","persistentKeepalive":25,"endpoint":{"dnsOrIP":{"dns":"peer.example.com","ip":"203.0.113.7"},"port":51820}}`, "", true},
		{"a bare address", `{"allowedIPs":["10.5.0.2/32","10.5.0.77"],"publicKey":"` + someKey + `"}`,
			`peer laptop (peers.kilo.squat.ai/laptop): spec.allowedIPs[1] "10.5.0.77" is no prefix, it is ignored: write it with its length, such as 10.5.0.7/32`, true},
		{"no key", `{"allowedIPs":["10.5.0.2/32"]}`,
			"peer laptop (peers.kilo.squat.ai/laptop): spec.publicKey is no public key, the peer is left out: give the public key of the peer, as `wg pubkey` prints it", false},
		{"keepalive", `{"allowedIPs":["10.5.0.2/32"],"publicKey":"` + someKey + `","persistentKeepalive":70000}`,
			`peer laptop (peers.kilo.squat.ai/laptop): spec.persistentKeepalive "70000" is not within 0 and 65535 seconds: write 25, or leave it out`, true},
		{"no port", `{"allowedIPs":["10.5.0.2/32"],"publicKey":"` + someKey + `","endpoint":{"dnsOrIP":{"ip":"203.0.113.7"},"port":0}}`,
			`peer laptop (peers.kilo.squat.ai/laptop): spec.endpoint "203.0.113.7" is neither an address nor a name with a port, the peer has to speak first: give dns or ip, and a port from 1 to 65535`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := PeerObject{Name: "laptop"}
			if err := json.Unmarshal([]byte(tt.spec), &o.Spec); err != nil {
				t.Fatal(err)
			}
			p, problems := ReadPeer(o)
			if p.Ready() != tt.ready {
				t.Errorf("ready: %t", p.Ready())
			}
			wantProblem(t, problems, tt.problem)
		})
	}
}

func wantProblem(t *testing.T, problems []mesh.Problem, want string) {
	t.Helper()
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	var all []string
	if want != "" {
		all = append(all, want)
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestANodeIsReadyForAMinuteAfterItWasSeen(t *testing.T) {
	annotations := map[string]string{endpoint: "198.51.100.1:51820", key: someKey, lastSeen: "1000"}
	n, _ := ReadNode(NodeObject{Name: "a", PodCIDR: "10.2.0.0/24", Annotations: annotations}, DefaultLocationLabel)
	for at, want := range map[int64]bool{1000: true, 1059: true, 1060: false, 10: true} {
		if got := n.Ready(time.Unix(at, 0)); got != want {
			t.Errorf("at %d: ready %t, want %t", at, got, want)
		}
	}
}

func FuzzReadNode(f *testing.F) {
	f.Add("10.2.0.0/24", "203.0.113.10:1", "10.1.0.5/24", "25", "10.0.0.0/24,10.0.1.0/24", `{"`+someKey+`":{"IP":"1.2.3.4","Port":51820,"Zone":""}}`)
	f.Add("x", "[::1%eth0]:51820", "::ffff:10.0.0.1/100", "-9223372036854775808", ",/0", `{"a":null}`)
	f.Fuzz(func(t *testing.T, pods, forced, internal, keepalive, extra, seen string) {
		n, problems := ReadNode(NodeObject{Name: "a", PodCIDR: pods, Annotations: map[string]string{
			forceEndpoint: forced, forceInternalIP: internal, persistentKeepalive: keepalive, allowedLocationIPs: extra, discoveredEndpoints: seen,
			endpoint: forced, key: someKey, lastSeen: keepalive,
		}}, DefaultLocationLabel)
		for _, p := range problems {
			if p.Remedy == "" || p.Field == "" {
				t.Errorf("problem %v has no remedy or field", p)
			}
		}
		if _, err := Sum([]Node{n}, nil, Options{Subnet: n.PodCIDR}); n.PodCIDR.IsValid() && n.PodCIDR.Bits() < 24 && err != nil {
			t.Error(err)
		}
		again, more := ReadNode(NodeObject{Name: "a", PodCIDR: n.PodCIDR.String(), Annotations: map[string]string{endpoint: n.Endpoint.String()}}, DefaultLocationLabel)
		if again.Endpoint != n.Endpoint || len(more) > 0 {
			t.Errorf("endpoint %q reads %q, %v", n.Endpoint, again.Endpoint, more)
		}
	})
}
