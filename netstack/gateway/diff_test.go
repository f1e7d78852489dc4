package gateway

import (
	"strings"
	"testing"
)

func TestDiffOfSpecs(t *testing.T) {
	const other = "[Interface]\nPrivateKey = " + keyB + "\nAddress = 10.1.0.2/24\n"
	base := map[string]string{"wg0.conf": plainConf, "users": "a:b\n"}
	for _, tc := range []struct {
		name      string
		have      string // YAML
		want      string
		wantFiles map[string]string
		changes   string
	}{
		{"the same", "socks5: [1080, 0, 0]\n", "socks5: [1080, 0, 0]\n", nil, ""},
		{
			"a service comes, one goes, one changes its target",
			"socks5: [1080]\nforward: [tcp/5432=10.0.0.5:5432]\n",
			"http: [8080]\nforward: [tcp/5432=10.0.0.6:5432]\n", nil, `
http 127.0.0.1:8080: (none) -> into tunnel wg0 for everyone [g.yaml:2]
forward tcp/127.0.0.1:5432: target: 10.0.0.5:5432 -> 10.0.0.6:5432 [g.yaml:3]
socks5 127.0.0.1:1080: into tunnel wg0 for everyone -> (none) [no longer asked for]
`,
		},
		{
			"another kind on the same listener",
			"socks5: [1080]\n", "http: [1080]\n", nil, `
http 127.0.0.1:1080: kind: socks5 -> http [g.yaml:2]
`,
		},
		{
			"a password, and no name or secret in the line",
			"socks5:\n- {listen: 1080, users: users}\n", "socks5:\n- {listen: 1080, users: users}\n",
			map[string]string{"users": "a:c\n"}, `
socks5 127.0.0.1:1080: users: 1 user -> 1 user [g.yaml:3]
`,
		},
		{
			"addresses, DNS and MTU of a tunnel",
			"", "",
			map[string]string{"wg0.conf": strings.NewReplacer("10.0.0.2/24", "10.0.0.3/24", "DNS = 10.0.0.1", "MTU = 1280").Replace(plainConf)}, `
tunnel wg0: addresses: 10.0.0.2/24 -> 10.0.0.3/24 [wg0.conf:3]
tunnel wg0: dns: 10.0.0.1 -> (none) [wg0.conf]
tunnel wg0: mtu: usual -> 1280 [wg0.conf:4]
`,
		},
		{
			"settings",
			"admin: 9080\n", "admin: 9081\ndrain: 1s\nstateDir: /s\n", nil, `
gateway: admin: 127.0.0.1:9080 -> 127.0.0.1:9081 [g.yaml:2]
gateway: drain: 20s -> 1s [g.yaml:3]
gateway: stateDir: (none) -> /s [g.yaml:4, for tunnels that are opened from now on]
`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			load := func(yaml string, files map[string]string) Spec {
				all := map[string]string{"g.yaml": "tunnels: [wg0.conf]\n" + yaml}
				for _, more := range []map[string]string{base, files} {
					for name, text := range more {
						all[name] = text
					}
				}
				return loadText(t, "--config g.yaml", all)
			}
			have, want := load(tc.have, nil), load(tc.want, tc.wantFiles)
			if got := lines(Diff(have, want)); got != strings.TrimPrefix(tc.changes, "\n") {
				t.Errorf("got\n%s\nwant%s", got, tc.changes)
			}
			if got := Diff(want, want); len(got) > 0 {
				t.Errorf("a spec differs from itself: %v", got)
			}
		})
	}

	t.Run("a tunnel comes, another goes", func(t *testing.T) {
		have := loadText(t, "wg0.conf --socks5 1080", map[string]string{})
		want := loadText(t, "b.conf --socks5 1080", map[string]string{"b.conf": other})
		const changes = `tunnel b: (none) -> 10.1.0.2/24 with 0 peers [b.conf]
tunnel wg0: 10.0.0.2/24 with 1 peers -> (none) [no longer asked for]
socks5 127.0.0.1:1080: tunnel: wg0 -> b [--socks5]
`
		if got := lines(Diff(have, want)); got != changes {
			t.Errorf("got\n%s\nwant\n%s", got, changes)
		}
	})

	t.Run("a file that is renamed is the same tunnel", func(t *testing.T) {
		have := loadText(t, "wg0.conf --publish tcp/80=127.0.0.1:80", map[string]string{})
		want := loadText(t, "office.conf --publish tcp/80=127.0.0.1:80", map[string]string{"office.conf": plainConf})
		const changes = "tunnel office: name: wg0 -> office [office.conf]\n"
		if got := lines(Diff(have, want)); got != changes {
			t.Errorf("got\n%s\nwant\n%s", got, changes)
		}
	})
}

func lines(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		b.WriteString(c.String() + "\n")
	}
	return b.String()
}
