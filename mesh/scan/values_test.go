package scan

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestValuesAreReadAsWgReadsThem(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.7/24": "10.0.0.0/24", "10.0.0.7": "10.0.0.7/32", "::ffff:10.0.0.7": "10.0.0.7/32",
		"::ffff:10.0.0.0/104": "10.0.0.0/8", "fd00::1": "fd00::1/128", "fe80::1%eth0": "", "10.0.0.0/33": "", "": "",
	} {
		got, f := Prefix(in)
		if want == "" && f == nil || want != "" && got != netip.MustParsePrefix(want) {
			t.Errorf("Prefix(%q) = %v, %v, want %q", in, got, f, want)
		}
	}
	for in, want := range map[string]time.Duration{"25": 25 * time.Second, "25s": 25 * time.Second, "off": 0, "1.5s": -1, "65536": -1, "-1": -1} {
		got, f := Keepalive(in)
		if (f != nil) != (want < 0) || f == nil && got != want {
			t.Errorf("Keepalive(%q) = %v, %v, want %v", in, got, f, want)
		}
	}
}

func TestWhatLooksLikeAKeyIsNotShown(t *testing.T) {
	const key = "yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM="
	if s := Shown("a " + key + "\n\x1b[1m"); strings.Contains(s, key[:20]) || strings.ContainsAny(s, "\n\x1b") {
		t.Errorf("Shown = %q", s)
	}
	if _, f := PublicKey(key[1:]); f == nil || strings.Contains(f.Detail+f.Remedy, key[1:20]) {
		t.Errorf("PublicKey of a part: %v", f)
	}
}

func TestABadWordIsAnsweredWithTheOneThatWasMeant(t *testing.T) {
	if _, f := Topology("locaton"); f == nil || f.Remedy != "write location" {
		t.Errorf("Topology(locaton) = %v", f)
	}
	if err := CheckName("Node_1"); err == nil || !strings.Contains(err.Error(), "lower case letters") {
		t.Errorf("CheckName(Node_1) = %v", err)
	}
	if err := CheckName("Node-1"); err == nil || !strings.Contains(err.Error(), "call the node node-1") {
		t.Errorf("CheckName(Node-1) = %v", err)
	}
}
