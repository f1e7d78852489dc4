package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// field returns what each line with that message says of a field.
func (l *logBook) field(message, field string) (out []string) {
	for line := range strings.Lines(l.String()) {
		var said map[string]any
		if json.Unmarshal([]byte(line), &said) == nil && said["message"] == message {
			out = append(out, fmt.Sprint(said[field]))
		}
	}
	return out
}

func TestStopTellsWhatItWaitsForAndCuts(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nforward: [tcp/0=10.0.0.1:7, udp/0=10.0.0.1:7]\ndrain: 100ms\n", "wg0.conf": f.conf()}, nil)
	for range 2 {
		exchange(t, dialTo(t, "tcp", r.listen(Forward, "tcp")), "hello")
	}
	mustDo(t, r.stop())
	if diff := cmp.Diff([]string{"2"}, r.log.field("waiting for open flows to end", "flows")); diff != "" {
		t.Errorf("waited for (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2"}, r.log.field("open flows were cut", "flows")); diff != "" {
		t.Errorf("cut (-want +got):\n%s", diff)
	}
}

func TestServiceThatGoesTellsWhatItCuts(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nforward: [tcp/0=10.0.0.1:7]\ndrain: 0\n", "wg0.conf": f.conf()}, nil)
	exchange(t, dialTo(t, "tcp", r.listen(Forward, "tcp")), "hello")
	r.write("gateway.yaml", "tunnels: [wg0.conf]\ndrain: 0\n")
	r.reload()
	eventually(t, "the cut is told", func() bool { return r.log.count("open flows were cut") == 1 })
}

func TestIgnoredLineIsToldOnceThoughItMoves(t *testing.T) {
	f := newFar(t)
	hook := "PostUp = iptables -A FORWARD -i %i -j ACCEPT\n"
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\n", "wg0.conf": strings.Replace(f.conf(), "Address", hook+"Address", 1)}, nil)
	r.write("wg0.conf", strings.Replace(f.conf(), "Address", "\n\n"+hook+"Address", 1))
	r.reload()
	if n := r.log.count("configuration line is ignored"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestChangeLinesNameFileLineTunnelAndPublicKeys(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\n", "wg0.conf": f.conf()}, nil)
	key := newKey(t)
	r.write("wg0.conf", strings.NewReplacer(f.near.Reveal(), key.Reveal(), "10.0.0.2/24", "10.0.0.3/24").Replace(f.conf()))
	at := r.path("wg0.conf")
	want := []Change{
		{What: "tunnel wg0", Field: "addresses", Old: "10.0.0.2/24", New: "10.0.0.3/24", Cause: at + ":3"},
		{What: "tunnel wg0", Field: "public_key", Old: f.near.Public().String(), New: key.Public().String(), Cause: at + ":2"},
	}
	if diff := cmp.Diff(want, r.reload()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"wg0", "wg0"}, r.log.field("changed", "tunnel")); diff != "" {
		t.Errorf("tunnel in the log (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "address added") && !strings.Contains(line, `"level":"debug"`) {
			t.Errorf("told twice: %s", line)
		}
	}
}

func TestPlanWithoutChangesIsAnEmptyList(t *testing.T) {
	if got, want := asJSON(t, Plan{}), "{\n  \"changes\": []\n}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFileOfUsersThatOthersCanReadIsWarnedOf(t *testing.T) {
	for _, tc := range []struct {
		mode os.FileMode
		want []string
	}{
		{0o600, nil},
		{0o440, nil},
		{0o644, []string{
			`g.yaml:2: users: "users" can be changed or read by others, as it has mode 0644: run chmod 600 on it`,
			`--http: "pass" can be changed or read by others, as it has mode 0644: run chmod 600 on it`,
		}},
	} {
		g := golden{flags: "--config g.yaml --http me:./pass@8080", files: map[string]string{
			"g.yaml": "tunnels: [wg0.conf]\nsocks5: [{listen: 1080, users: users}]\n", "users": "a:b\n", "pass": "word\n",
		}}
		s := g.enter(t)
		mustDo(t, os.Chmod("users", tc.mode), os.Chmod("pass", tc.mode))
		spec, err := Load(s)
		mustDo(t, err)
		if diff := cmp.Diff(tc.want, texts(spec.Warnings)); diff != "" {
			t.Errorf("mode %o (-want +got):\n%s", tc.mode, diff)
		}
	}
}
