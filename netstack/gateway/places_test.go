package gateway

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a gateway refuses when it starts, check refuses too, in the same words.
func TestFoldersThatAreNotThereAreRefusedByCheckAndStart(t *testing.T) {
	for _, tc := range []struct {
		name, yaml string
		want       string
	}{
		{"a state folder below a file", "stateDir: file/state", `g.yaml:2: stateDir: "DIR/file/state" is no folder and cannot be made one: choose another path`},
		{"a folder for wg that is a file", "uapiDir: file", `g.yaml:2: uapiDir: "DIR/file" is no folder and cannot be made one: choose another path`},
		{"the folder of the admin socket", "admin: unix:none/a.sock", `g.yaml:2: admin unix:DIR/none/a.sock: is in a folder that does not exist: make the folder or choose another path`},
		{"the folder of a proxy's socket", "socks5: [\"unix:none/a.sock\"]", `g.yaml:2: socks5 unix:DIR/none/a.sock: is in a folder that does not exist: make the folder or choose another path`},
		{"a file where a socket belongs", "http: [\"unix:file\"]", `g.yaml:2: http unix:DIR/file: is a file that is no socket: remove it or choose another path`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, map[string]string{"g.yaml": "tunnels: [wg0.conf]\n" + tc.yaml + "\n", "wg0.conf": plainConf, "file": ""}, func(o *Options) {})
			r.options.Sources.Config = r.path("g.yaml")
			said := func(err error) string {
				if err == nil {
					return "nothing"
				}
				return strings.ReplaceAll(strings.ReplaceAll(err.Error(), r.dir+"/g.yaml", "g.yaml"), r.dir, "DIR")
			}
			report, err := Check(r.options.Sources)
			if diff := cmp.Diff(tc.want, said(err)); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
			if len(report.Refused) != 1 {
				t.Errorf("refused %q", report.Refused)
			}
			if diff := cmp.Diff(tc.want, said(r.Run(t.Context()))); diff != "" {
				t.Errorf("start (-want +got):\n%s", diff)
			}
			if _, err := os.Stat(r.path("none")); !errors.Is(err, syscall.ENOENT) {
				t.Errorf("a folder was made: %v", err)
			}
		})
	}
}

func TestStateFolderIsMadeByStartAndNotByCheck(t *testing.T) {
	f := newFar(t)
	r := newRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nstateDir: a/b\nsocks5: [0]\ndrain: 0\n", "wg0.conf": f.conf()}, nil)
	if _, err := Check(r.options.Sources); err != nil {
		t.Errorf("check: %v", err)
	}
	if _, err := os.Stat(r.path("a")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("check made a folder: %v", err)
	}
	r.run()
	viaSOCKS(t, "tcp", r.listen(SOCKS5, "tcp"), "10.0.0.1:7")
	mustDo(t, r.stop())
	if info, err := os.Stat(r.path("a/b/wg0.endpoints.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("state file %v, %v", info, err)
	}
}

func TestReportAsJSONHasAllAndNoSecret(t *testing.T) {
	g := golden{flags: "wg0.conf --socks5 me:./pass@1080", files: map[string]string{"pass": "planted-word\n"}}
	report, err := Check(g.enter(t))
	mustDo(t, err)
	got := asJSON(t, report)
	for _, want := range []string{`"publicKey": "Y2FD6uTgrq+/bbBAXCNOtE+PGk8Papoh7qaWBpQUXn0="`, `"endpoint": "192.0.2.1:51820"`, `"kind": "socks5"`, `"users": 1`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if strings.Contains(got, keyA) || strings.Contains(got, "planted") {
		t.Errorf("a secret is in %s", got)
	}
}
