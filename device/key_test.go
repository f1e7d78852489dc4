package device

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// The pairs are those of RFC 7748, section 6.1.
func TestPublicKeyOfPrivateKey(t *testing.T) {
	for private, public := range map[string]string{
		"77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a": "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
		"5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb": "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
	} {
		b, err := hex.DecodeString(private)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ParsePrivateKey(base64.StdEncoding.EncodeToString(b))
		if err != nil {
			t.Fatal(err)
		}
		if got := key.Public().Hex(); got != public {
			t.Errorf("public key of %s is %s, want %s", private, got, public)
		}
	}
	if got := (PrivateKey{}).Public(); !got.IsZero() {
		t.Errorf("public key of no key is %v, want none", got)
	}
}

func TestNewKeysAreClampedAndDiffer(t *testing.T) {
	a, err := NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	if a.Equal(b) || a.Public() == b.Public() || a.IsZero() {
		t.Error("two new private keys are one")
	}
	for _, k := range []PrivateKey{a, b} {
		if v := k.secret.value(); v[0]&7 != 0 || v[31]&0xc0 != 0x40 {
			t.Error("a new private key is not clamped")
		}
	}
	p, err := NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	if q, err := NewPresharedKey(); err != nil || p.Equal(q) || p.IsZero() {
		t.Errorf("two new preshared keys are one, %v", err)
	}
}

func TestKeysAgreeWithWg(t *testing.T) {
	key, err := NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("wg", "pubkey")
	cmd.Stdin = strings.NewReader(key.Reveal() + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run wg (package wireguard-tools must be installed): %v", err)
	}
	if got, want := key.Public().String(), strings.TrimSpace(string(out)); got != want {
		t.Errorf("public key is %s, wg says %s", got, want)
	}
}

func TestKeyIsReadFromWhatWgPrintsAndNothingElse(t *testing.T) {
	const good = "y6nz0ssUtxXrE0fLUz+Y5Y7Dj21IEurZGfC95Faca34="
	public, err := ParsePublicKey(good)
	if err != nil || public.String() != good {
		t.Fatalf("ParsePublicKey(%q) = %v, %v", good, public, err)
	}
	private, err := ParsePrivateKey(good)
	if err != nil || private.Reveal() != good {
		t.Fatalf("ParsePrivateKey: %v", err)
	}
	psk, err := ParsePresharedKey(good)
	if err != nil || psk.Reveal() != good {
		t.Fatalf("ParsePresharedKey: %v", err)
	}
	for name, text := range map[string]string{
		"empty":              "",
		"no padding":         good[:43],
		"one byte short":     base64.StdEncoding.EncodeToString(public[:31]) + "=",
		"one byte long":      base64.StdEncoding.EncodeToString(append(public[:], 7)),
		"line end inside":    good[:20] + "\n" + good[20:],
		"line end in place":  good[:20] + "\n" + good[21:],
		"space before":       " " + good,
		"bits left over":     good[:42] + "5=",
		"the URL's alphabet": strings.ReplaceAll(good, "+", "-"),
		"hexadecimal":        public.Hex(),
	} {
		t.Run(name, func(t *testing.T) {
			const want = "not a WireGuard key: 32 bytes in base64 are 44 characters that end in ="
			if k, err := ParsePublicKey(text); err == nil || err.Error() != want || !k.IsZero() {
				t.Errorf("ParsePublicKey = %v, %v", k, err)
			}
			if k, err := ParsePrivateKey(text); err == nil || err.Error() != want || !k.IsZero() {
				t.Errorf("ParsePrivateKey = %v, %v", k, err)
			}
			if k, err := ParsePresharedKey(text); err == nil || err.Error() != want || !k.IsZero() {
				t.Errorf("ParsePresharedKey = %v, %v", k, err)
			}
		})
	}
}

func TestPublicKeyText(t *testing.T) {
	k := PublicKey{1, 2, 3, 31: 9}
	for got, want := range map[string]string{
		k.String(): "AQIDAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAk=",
		k.Short():  "AQIDAAAA…",
		k.Hex():    "0102030000000000000000000000000000000000000000000000000000000009",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	text, err := json.Marshal(map[PublicKey]PublicKey{k: k})
	if err != nil || string(text) != `{"`+k.String()+`":"`+k.String()+`"}` {
		t.Errorf("JSON is %s, %v", text, err)
	}
	var back map[PublicKey]PublicKey
	if err := json.Unmarshal(text, &back); err != nil || back[k] != k {
		t.Errorf("JSON is read back as %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`"AQID"`), &k); err == nil {
		t.Error("a short key was read from JSON")
	}
	if k.Compare(PublicKey{1, 2, 4}) >= 0 || k.Compare(PublicKey{1, 2, 2}) <= 0 || k.Compare(k) != 0 {
		t.Error("keys are not ordered by their bytes")
	}
}
