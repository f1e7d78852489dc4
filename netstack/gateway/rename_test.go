package gateway

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A file that is renamed is the same tunnel: its socket for wg follows, and its old name is free
// for another tunnel in the same reload.
func TestTunnelThatIsRenamedFreesItsName(t *testing.T) {
	f := newFar(t)
	const rest = "\ndrain: 0\nuapiDir: run\nforward: [tcp/0=10.0.0.1:7]\n"
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]" + rest, "wg0.conf": f.conf()}, nil)
	flow := startStream(dialTo(t, "tcp", r.listen(Forward, "tcp")))
	progress(t, map[string]*stream{"forward": flow})
	r.write("office.conf", f.conf())
	r.write("wg0.conf", "[Interface]\nPrivateKey = "+newKey(t).Reveal()+"\nAddress = 10.8.0.2/24\n")
	r.write("gateway.yaml", strings.Replace("tunnels: [office.conf, wg0.conf]"+rest, "tcp/0", "office/tcp/0", 1))
	r.reload()
	progress(t, map[string]*stream{"forward": flow})
	flow.end(t, "forward")
	for _, name := range []string{"office", "wg0"} {
		if info, err := os.Lstat(r.path("run/" + name + ".sock")); err != nil || info.Mode()&fs.ModeSocket == 0 {
			t.Errorf("socket of %s: %v, %v", name, info, err)
		}
	}

	r.write("gateway.yaml", strings.Replace("tunnels: [office.conf]"+rest, "tcp/0", "office/tcp/0", 1))
	r.reload()
	eventually(t, "the socket of the tunnel that went is gone", func() bool {
		_, err := os.Lstat(r.path("run/wg0.sock"))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// The name may be that of a tunnel that is on its way out, with flows that it waits for.
func TestNameOfATunnelThatDepartsIsFree(t *testing.T) {
	f := newFar(t)
	const rest = "\ndrain: 1h\nuapiDir: run\n"
	other := "[Interface]\nPrivateKey = " + newKey(t).Reveal() + "\nAddress = 10.8.0.2/24\n"
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf, b.conf]" + rest, "wg0.conf": f.conf(), "b.conf": other}, nil)
	r.write("gateway.yaml", "tunnels: [wg0.conf]"+rest)
	r.reload()
	r.write("b.conf", f.conf())
	r.write("gateway.yaml", "tunnels: [b.conf]"+rest)
	r.reload()
	if s := r.Status(); len(s.Tunnels) != 1 || s.Tunnels[0].Name != "b" {
		t.Errorf("tunnels %+v", s.Tunnels)
	}
}

func TestRenameIsUndone(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nuapiDir: run\n", "wg0.conf": f.conf()}, nil)
	r.write("office.conf", f.conf())
	r.write("gateway.yaml", "tunnels: [office.conf]\nuapiDir: run\nadmin: unix:none/a.sock\n")
	if _, err := r.Reload(t.Context()); err == nil {
		t.Fatal("a socket in no folder was opened")
	}
	files, err := os.ReadDir(r.path("run"))
	mustDo(t, err)
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	if diff := cmp.Diff([]string{"wg0.sock"}, names); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
}
