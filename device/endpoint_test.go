package device

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEndpointIsReadAsWgReadsIt(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"192.0.2.1:51820":              {"192.0.2.1", 51820},
		"  192.0.2.1:051820\t":         {"192.0.2.1", 51820},
		"[2001:db8::1]:1":              {"2001:db8::1", 1},
		"[2001:DB8:0::1]:65535":        {"2001:db8::1", 65535},
		"2001:db8::1:51820":            {"2001:db8::1", 51820},
		"[::ffff:192.0.2.1]:5":         {"192.0.2.1", 5},
		"[fe80::1%eth0]:51820":         {"fe80::1%eth0", 51820},
		"VPN.Example.ORG:51820":        {"vpn.example.org", 51820},
		"vpn.example.org.:51820":       {"vpn.example.org.", 51820},
		"[vpn.example.org]:51820":      {"vpn.example.org", 51820},
		"my_router:51820":              {"my_router", 51820},
		"localhost:51820":              {"localhost", 51820},
		"xn--bcher-kva.example:51820":  {"xn--bcher-kva.example", 51820},
		"1.2.3.4.in-addr.example:9":    {"1.2.3.4.in-addr.example", 9},
		strings.Repeat("a", 63) + ":1": {strings.Repeat("a", 63), 1},
	} {
		got, err := ParseEndpoint(text)
		if err != nil || got != want {
			t.Errorf("ParseEndpoint(%q) = %v, %v, want %v", text, got, err, want)
		}
		if again, err := ParseEndpoint(got.String()); err != nil || again != got {
			t.Errorf("ParseEndpoint(%q) = %v, %v, want %v again", got.String(), again, err, got)
		}
	}
}

func TestEndpointThatNoOneCanReachIsRefusedWithTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `endpoint "" has no port: write 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820`,
		"192.0.2.1":                     `endpoint "192.0.2.1" has no port: write 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820`,
		"192.0.2.1:":                    `endpoint "192.0.2.1:" has a port that is not a number from 1 to 65535`,
		"192.0.2.1:0":                   `endpoint "192.0.2.1:0" has a port that is not a number from 1 to 65535`,
		"192.0.2.1:65536":               `endpoint "192.0.2.1:65536" has a port that is not a number from 1 to 65535`,
		"192.0.2.1:-1":                  `endpoint "192.0.2.1:-1" has a port that is not a number from 1 to 65535`,
		"192.0.2.1:http":                `endpoint "192.0.2.1:http" has a port that is not a number from 1 to 65535`,
		"[2001:db8::1]":                 `endpoint "[2001:db8::1]" has no port after the bracket: write [2001:db8::1]:51820`,
		"[2001:db8::1]51820":            `endpoint "[2001:db8::1]51820" has no port after the bracket: write [2001:db8::1]:51820`,
		"[2001:db8::1:51820":            `endpoint "[2001:db8::1:51820" has no port after the bracket: write [2001:db8::1]:51820`,
		":51820":                        `endpoint ":51820" has a host that is neither an IP address nor a DNS name`,
		".:51820":                       `endpoint ".:51820" has a host that is neither an IP address nor a DNS name`,
		"a..b:51820":                    `endpoint "a..b:51820" has a host that is neither an IP address nor a DNS name`,
		"-a.example:51820":              `endpoint "-a.example:51820" has a host that is neither an IP address nor a DNS name`,
		"bücher.example:51820":          `endpoint "bücher.example:51820" has a host that is neither an IP address nor a DNS name`,
		"a\nb:51820":                    `endpoint "a\nb:51820" has a host that is neither an IP address nor a DNS name`,
		"192.0.2.256:51820":             `endpoint "192.0.2.256:51820" has a host that looks like an IPv4 address but is none`,
		"192.0.2:51820":                 `endpoint "192.0.2:51820" has a host that looks like an IPv4 address but is none`,
		"fe80::1%a b:51820":             `endpoint "fe80::1%a b:51820" has a zone that is no interface name`,
		"[fe80::1%eth0;reboot]:51820":   `endpoint "[fe80::1%eth0;reboot]:51820" has a zone that is no interface name`,
		strings.Repeat("a", 64) + ":1":  `endpoint "` + strings.Repeat("a", 64) + `:1" has a host that is neither an IP address nor a DNS name`,
		strings.Repeat("a.", 127) + ":": `endpoint "` + strings.Repeat("a.", 127) + `:" has a port that is not a number from 1 to 65535`,
	} {
		got, err := ParseEndpoint(text)
		if err == nil || !got.IsZero() {
			t.Errorf("ParseEndpoint(%q) = %v, %v, want an error", text, got, err)
			continue
		}
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("ParseEndpoint(%q) (-want +got):\n%s", text, diff)
		}
	}
}

func TestEndpointAsAddress(t *testing.T) {
	for _, tt := range []struct {
		endpoint Endpoint
		want     string
		ok       bool
	}{
		{Endpoint{"192.0.2.1", 5}, "192.0.2.1:5", true},
		{Endpoint{"::ffff:192.0.2.1", 5}, "192.0.2.1:5", true},
		{Endpoint{"fe80::1%eth0", 5}, "[fe80::1%eth0]:5", true},
		{Endpoint{"vpn.example", 5}, "invalid AddrPort", false},
		{Endpoint{}, "invalid AddrPort", false},
	} {
		got, ok := tt.endpoint.AddrPort()
		if got.String() != tt.want || ok != tt.ok {
			t.Errorf("%v.AddrPort() = %v, %v, want %v, %v", tt.endpoint, got, ok, tt.want, tt.ok)
		}
		if back := EndpointFrom(got); ok && back.String() != got.String() {
			t.Errorf("EndpointFrom(%v) = %v", got, back)
		}
	}
	if got := EndpointFrom(netip.AddrPort{}); !got.IsZero() {
		t.Errorf("EndpointFrom of nothing = %v, want none", got)
	}
}

func TestEndpointIsTextInJSON(t *testing.T) {
	want := struct{ A, B Endpoint }{A: Endpoint{"2001:db8::1", 51820}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text); got != `{"A":"[2001:db8::1]:51820","B":""}` {
		t.Errorf("marshalled %s", got)
	}
	got := struct{ A, B Endpoint }{B: Endpoint{"to be emptied", 1}}
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("read back %v, %v, want %v", got, err, want)
	}
	if err := json.Unmarshal([]byte(`{"A":"nowhere"}`), &got); err == nil || !strings.Contains(err.Error(), `endpoint "nowhere" has no port`) {
		t.Errorf("bad text: %v", err)
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"192.0.2.1:51820", "[fe80::1%eth0]:1", "2001:db8::1:2", "a.example:3", "[::ffff:1.2.3.4%x]:5", "[a]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			return
		}
		again, err := ParseEndpoint(e.String())
		if err != nil || again != e {
			t.Fatalf("%q is %v, whose text is read as %v, %v", s, e, again, err)
		}
	})
}
