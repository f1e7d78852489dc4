//go:build linux

package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

const wantCNI = `{
  "cniVersion": "1.0.0",
  "name": "stillwire",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "stillwire-pods",
      "isGateway": true,
      "hairpinMode": true,
      "mtu": 1420,
      "ipam": {
        "type": "host-local",
        "ranges": [
          [
            {
              "subnet": "10.2.0.0/24"
            }
          ],
          [
            {
              "subnet": "fd02::/64"
            }
          ]
        ],
        "routes": [
          {
            "dst": "0.0.0.0/0"
          },
          {
            "dst": "::/0"
          }
        ]
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
`

func TestPodsGetANetworkWhereThereIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.d", "10-stillwire.conflist")
	r := newRig(t, func(o *host.Options) { o.CNIFile = path })
	r.apply(plan())
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := cmp.Diff(wantCNI, read()); diff != "" {
		t.Error(diff)
	}
	wantChanges(t, r.apply(plan()))
	// Nobody sees half of it, and no other file is left beside it.
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
	smaller := plan()
	smaller.MTU = 1380
	if changes := r.apply(smaller); !slices.ContainsFunc(changes, func(c mesh.HostChange) bool { return c.What == "cni" }) || !strings.Contains(read(), `"mtu": 1380`) {
		t.Errorf("another MTU: %v\n%s", changes, read())
	}
	// A node whose pods are not known keeps the network of those that run.
	none := smaller
	none.Firewall.Pods = nil
	r.apply(none)
	var list struct{ Name string }
	if err := json.Unmarshal([]byte(read()), &list); err != nil || list.Name != "stillwire" {
		t.Errorf("without pods: %s, %v", read(), err)
	}
	r.host = nil
	r.uninstall()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("uninstalled, and the file: %v", err)
	}
}

func TestAnothersNetworkOfPodsIsLeftAlone(t *testing.T) {
	const theirs = `{"cniVersion": "0.4.0", "name": "kubernetes", "plugins": []}`
	path := filepath.Join(t.TempDir(), "10-kilo.conflist")
	if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *host.Options) { o.CNIFile = path })
	_, problems, err := r.try(plan())
	if err != nil || len(problems) != 1 || problems[0].Reason != mesh.HostConflict || !strings.Contains(problems[0].Detail, path) {
		t.Errorf("problems %v, %v", problems, err)
	}
	r.uninstall()
	if text, err := os.ReadFile(path); err != nil || string(text) != theirs {
		t.Errorf("their file is %q, %v", text, err)
	}
}
