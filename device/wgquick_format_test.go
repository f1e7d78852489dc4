package device

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFormatIsTheInverseOfParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkRoundTrip(t, drawFile(t)) })
}

// drawFile draws what Parse could have returned.
func drawFile(t *rapid.T) *File {
	f := &File{
		Addresses: drawDistinct(t, "addresses", drawHostPrefix),
		DNS:       drawDistinct(t, "dns", drawHostAddr),
		DNSSearch: drawDistinct(t, "search", drawHostName),
		MTU:       rapid.OneOf(rapid.Just(0), rapid.IntRange(minMTU, maxMTU)).Draw(t, "mtu"),
	}
	f.Config = Config{
		ListenPort: rapid.Uint16().Draw(t, "port"),
		FwMark:     rapid.Uint32().Draw(t, "mark"),
	}
	if rapid.Bool().Draw(t, "has key") {
		f.Config.PrivateKey = testKey(rapid.Byte().Draw(t, "key"))
	}
	owned := make(map[netip.Prefix]bool)
	for _, b := range drawDistinct(t, "peers", func(t *rapid.T) byte { return rapid.Byte().Draw(t, "peer") }) {
		f.Config.Peers = append(f.Config.Peers, drawFilePeer(t, b, owned))
	}
	for range rapid.IntRange(0, 3).Draw(t, "sections") {
		f.Sections = append(f.Sections, drawSection(t))
	}
	return f
}

func drawFilePeer(t *rapid.T, b byte, owned map[netip.Prefix]bool) PeerConfig {
	p := PeerConfig{
		PublicKey:           PublicKey{b, 0xff}, // nobody's own
		Name:                cleanName(rapid.String().Draw(t, "name")),
		PersistentKeepalive: time.Duration(rapid.Uint16().Draw(t, "keepalive")) * time.Second,
	}
	if rapid.Bool().Draw(t, "has psk") {
		p.PresharedKey = testPSK(b)
	}
	if port := rapid.Uint16().Draw(t, "endpoint port"); port != 0 {
		if rapid.Bool().Draw(t, "named") {
			p.Endpoint = Endpoint{drawHostName(t), port}
		} else {
			p.Endpoint = EndpointFrom(netip.AddrPortFrom(drawHostAddr(t), port))
		}
	}
	for _, prefix := range drawDistinct(t, "allowed", drawHostPrefix) {
		if prefix = prefix.Masked(); !owned[prefix] {
			owned[prefix] = true
			p.AllowedIPs = append(p.AllowedIPs, prefix)
		}
	}
	return p
}

func drawSection(t *rapid.T) Section {
	s := Section{Name: rapid.SampledFrom(proxySections).Draw(t, "section")}
	for range rapid.IntRange(0, 3).Draw(t, "keys") {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching("[$'\"`#;= \\\\a]{0,8}")).Draw(t, "value")
		value = strings.NewReplacer("\x00", "", "\n", "", "\r", "").Replace(value)
		s.Keys = append(s.Keys, KeyValue{
			Key:   rapid.StringMatching(`[A-Za-z][A-Za-z0-9]{0,9}`).Draw(t, "section key"),
			Value: oneLine(value),
		})
	}
	return s
}

func drawDistinct[T comparable](t *rapid.T, label string, draw func(*rapid.T) T) (out []T) {
	for range rapid.IntRange(0, 20).Draw(t, label) {
		out = appendNew(out, draw(t))
	}
	return out
}

func drawHostAddr(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "is IPv4") {
		return netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), 0, 1 + rapid.ByteRange(0, 3).Draw(t, "d")})
	}
	a := [16]byte{0: 0xfd, 7: rapid.Byte().Draw(t, "h"), 15: 1}
	return netip.AddrFrom16(a).WithZone(rapid.SampledFrom([]string{"", "", "eth0"}).Draw(t, "zone"))
}

func drawHostPrefix(t *rapid.T) netip.Prefix {
	a := drawHostAddr(t).WithZone("")
	return netip.PrefixFrom(a, rapid.IntRange(8, a.BitLen()).Draw(t, "length"))
}

func drawHostName(t *rapid.T) string {
	return rapid.StringMatching(`[a-z][a-z0-9_]{0,9}(\.[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?){0,3}\.?`).Draw(t, "host name")
}

func TestFileMadeByHandAddsNoLines(t *testing.T) {
	const evil = "x\nPostUp = reboot"
	f := &File{
		Config: Config{Peers: []PeerConfig{{
			PublicKey: testPeer(1), Name: evil + "\u2028y", Endpoint: Endpoint{evil, 1},
		}}},
		DNSSearch: []string{evil},
		Sections:  []Section{{Name: evil, Keys: []KeyValue{{Key: evil, Value: evil}}}},
	}
	want := `[Interface]
DNS = x PostUp = reboot

[Peer]
# Name = x PostUp = reboot y
PublicKey = ` + testPeer(1).String() + `
Endpoint = x PostUp = reboot:1
AllowedIPs =

[x PostUp = reboot]
x PostUp = reboot = x PostUp = reboot
`
	if diff := cmp.Diff(want, string(f.Format())); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestNamesOfPeersAreFoundInComments(t *testing.T) {
	const key = "PublicKey = IXEU5EO7zOgWLmjTJ5RWKnZHVnKomLTHm2XUkWC11GI=\n"
	for text, want := range map[string]string{
		"[Peer]\n" + key:                                                        "",
		"[Peer] # laptop\n" + key:                                               "laptop",
		"[Peer] ; laptop ; of Anna\n" + key:                                     "laptop ; of Anna",
		"[Peer] # Name = laptop\n" + key:                                        "laptop",
		"[Peer] # x = y\n" + key:                                                "",
		"# Name = laptop\n[Peer]\n" + key:                                       "laptop",
		"#name:laptop\n[Peer]\n" + key:                                          "laptop",
		"; Friendly_Name = Anna's  \t phone\n[Peer]\n" + key:                    "Anna's phone",
		"[Peer]\n# friendly_name = laptop\n" + key:                              "laptop",
		"[Peer]\n" + key + "# Name = laptop\n":                                  "laptop",
		"# Name = laptop\n\n[Peer]\n" + key:                                     "",
		"# Name = laptop\n# bought in 2024\n[Peer]\n" + key:                     "laptop",
		"# Name = one\n[Peer] # two\n# Name = three\n" + key:                    "two",
		"### Client laptop\n[Peer]\n" + key:                                     "laptop",
		"### begin laptop ###\n[Peer]\n" + key:                                  "laptop",
		"# BEGIN_PEER laptop\n[Peer]\n" + key:                                   "laptop",
		"# just a comment\n[Peer]\n# another\n" + key:                           "",
		"[Peer]\n#Name = \n" + key:                                              "",
		"[Peer]\n# Name = a\x1b[31mb\u200bc\n" + key:                            "a[31mbc",
		"[Peer]\n# Name = " + strings.Repeat("é ", 99) + "\n" + key:             strings.TrimSpace(strings.Repeat("é ", 32)),
		"[Peer]\n# Name = Lmxujw+70HeCaxdh6x/afpXcJAaZw8iJJIb3l5ANV9w=\n" + key: "",
	} {
		f, err := Parse("wg0.conf", strings.NewReader(text), ParseOptions{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := f.Config.Peers[0].Name; got != want {
			t.Errorf("%q: name is %q, want %q", text, got, want)
		}
	}
	f, err := Parse("wg0.conf", strings.NewReader("[Peer]\n"+key+"# Name = second\n[Peer]\nPublicKey = RA6EPxdrMyYm5ip1MJhVtVHkdVoFc1LxB3hLwipKWn0=\n"), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := f.Config.Peers[0], f.Config.Peers[1]; a.Name != "" || b.Name != "second" || a.Source != "wg0.conf:1" || b.Source != "wg0.conf:4" {
		t.Errorf("peers are %q of %s and %q of %s", a.Name, a.Source, b.Name, b.Source)
	}
}

func TestAnyMixOfLinesIsReadWhole(t *testing.T) {
	const remarks = "\n#\n# Name = b\n;c"
	sections := map[string]string{
		"[Interface]": remarks + "\n" + `PrivateKey = QCcT4LE4CTnerjgpVNNW8HWchJoLalUnGrigJdqqL2w=
PrivateKeyFile = k
PrivateKey = $K
Address = $A
Address = 10.0.0.1/8 fd00::1
DNS = $D
MTU = 600
MTU = 0
FwMark = 7
ListenPort = 1
PostUp = x`,
		"[Peer] # a": remarks + "\n" + `PublicKey = RA6EPxdrMyYm5ip1MJhVtVHkdVoFc1LxB3hLwipKWn0=
PresharedKey = $K
PresharedKeyFile = k
PresharedKey =
Endpoint = A.example:1
Endpoint = ::1:1
Endpoint =
AllowedIPs = 10.0.0.0/24
AllowedIPs = 10.0.0.0/24, ::/0
AllowedIPs = 10.0.0.9/24
AllowedIPs =
AllowedIPs = ::ffff:10.0.0.0/120
PersistentKeepalive = 7
PersistentKeepalive = off`,
		"[http]":     remarks + "\n" + "BindAddress = `;`\nx='#\nPassword = $P\nx = $$y\ny = \"\"\"a\"\"\" #\nz = a\\\nZ=é \t é",
		"[ socks5 ]": "",
	}
	headers := slices.Sorted(maps.Keys(sections))
	publicKeys := []string{
		"dzUPh14gysFF86m4HRCd/C5+a4FxWGpM6p45cziB8Eo=", // of k
		"eGvhMxJCQ+C6crFwQmBhUZ28iZqOb35Hc3pryv21NGo=",
		"RA6EPxdrMyYm5ip1MJhVtVHkdVoFc1LxB3hLwipKWn0=",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "", "WGConfig = wg\n", "\ufeff"}).Draw(t, "top")
		for _, header := range rapid.SliceOfN(rapid.SampledFrom(headers), 0, 8).Draw(t, "headers") {
			text += header + "\n"
			if strings.HasPrefix(header, "[Peer]") {
				text += "PublicKey = " + rapid.SampledFrom(publicKeys).Draw(t, "key") + "\n"
			}
			pool := strings.Split(sections[header], "\n")
			for _, line := range rapid.SliceOfN(rapid.SampledFrom(pool), 0, 8).Draw(t, "lines") {
				text += line + "\n"
			}
		}
		f, err := Parse("wg0.conf", strings.NewReader(text), fuzzOptions())
		if err != nil {
			t.Fatalf("refused: %v\n%s", err, text)
		}
		if _, err := f.Config.Normalized(); err != nil {
			t.Fatalf("the Config read cannot be obeyed: %v\n%s", err, text)
		}
		checkRoundTrip(t, f)
	})
}
