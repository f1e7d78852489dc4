package file

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// allocated is what f takes of the heap, MiB, also what it gives back.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

func TestAFileOfMeaninglessValuesCostsLittle(t *testing.T) {
	for name, text := range map[string]string{
		"list":         "[" + strings.Repeat("a,", 7<<20) + "a]",
		"keys":         "{" + strings.Repeat("a,", 7<<20) + "a}",
		"pairs":        "[" + strings.Repeat(":,", 7<<20) + "a]",
		"lists":        "[" + strings.Repeat("[],", 5<<20) + "a]",
		"dashes":       strings.Repeat("-\n", 7<<20),
		"lines":        strings.Repeat("a:\n", 5<<20),
		"nothing":      strings.Repeat("?\n", 7<<20),
		"quoted words": "[" + strings.Repeat(`"",`, 5<<20) + "a]",
	} {
		for _, where := range []string{"a.yaml", "status/a.yaml"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				dir := t.TempDir()
				must(t, os.Mkdir(filepath.Join(dir, "status"), 0o755))
				write(t, filepath.Join(dir, where), text)
				var u mesh.Update
				var err error
				cost := allocated(func() { u, err = Load(dir) })
				must(t, err)
				if cost > 100 {
					t.Errorf("%d MiB to read %d", cost, len(text)>>20)
				}
				if len(u.Problems) != 1 || u.Problems[0].Reason != mesh.Invalid || !strings.Contains(u.Problems[0].Detail, "so what it said before stays") {
					t.Errorf("problems: %v", u.Problems)
				}
			})
		}
	}
}

func TestAStatusFileThatIsNotTooLargeCostsLittleToo(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "status", "a.yaml"), "{"+strings.Repeat("a,", maxStatus/2-2)+"a}")
	if cost := allocated(func() { Load(dir) }); cost > 10 {
		t.Errorf("%d MiB", cost)
	}
}

func TestAStatusFileIsSmall(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "status"), 0o755))
	write(t, filepath.Join(dir, "status", "a.yaml"), status("a", "")+strings.Repeat("# more\n", maxStatus/7))
	write(t, filepath.Join(dir, "status", "b.yaml"), status("b", ""))
	u, err := Load(dir)
	must(t, err)
	if len(u.Nodes) != 1 || len(u.Problems) != 1 || !strings.Contains(u.Problems[0].Detail, "larger than") || !u.Synced {
		t.Errorf("nodes %v, synced %v, problems %v", nodeNames(u), u.Synced, u.Problems)
	}
}

func keyOf(i int) (k device.PublicKey) {
	k[0], k[1], k[31] = byte(i), byte(i>>8), 1
	return k
}

func learnt(n int) map[device.PublicKey]netip.AddrPort {
	all := make(map[device.PublicKey]netip.AddrPort)
	for i := range n {
		all[keyOf(i)] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 51820)
	}
	return all
}

// Of endpoints that do not fit some are left out: the rest is of more use than nothing at all.
func TestANodeThatKnowsManyPublishesWhatFits(t *testing.T) {
	dir := t.TempDir()
	must(t, New(Options{Dir: dir}).Publish(t.Context(), "a", mesh.NodeStatus{PublicKey: keyOf(1), Leads: 7, Learned: learnt(5000)}))
	u, err := Load(dir)
	must(t, err)
	if len(u.Problems) > 0 || len(u.Nodes) != 1 || u.Nodes[0].Status.Leads != 7 || len(u.Nodes[0].Status.Learned) < 1000 {
		t.Errorf("problems %v of %d nodes", u.Problems, len(u.Nodes))
	}
}

func TestMemoryReadsWhateverItWrote(t *testing.T) {
	want := mesh.Update{Source: "files"}
	for i := range 1000 {
		want.Nodes = append(want.Nodes, mesh.Node{
			Identity: mesh.Identity{Name: fmt.Sprintf("n%04d", i), Undeclared: i%2 == 0},
			Status:   mesh.NodeStatus{PublicKey: keyOf(i), Learned: learnt(250)},
		})
	}
	m := Memory{filepath.Join(t.TempDir(), "facts")}
	begun := time.Now()
	must(t, m.Save([]mesh.Update{want}))
	saved := time.Now()
	got, err := m.Load()
	must(t, err)
	t.Logf("saved in %v, loaded in %v", saved.Sub(begun).Round(time.Millisecond), time.Since(saved).Round(time.Millisecond))
	// What is long is compared by itself: cmp sorts the keys of a quarter of a million.
	for _, u := range got {
		for i, n := range u.Nodes {
			if i < len(want.Nodes) && !maps.Equal(n.Status.Learned, want.Nodes[i].Status.Learned) {
				t.Errorf("%s: %d learnt endpoints are remembered, want the %d", n.Name, len(n.Status.Learned), len(want.Nodes[i].Status.Learned))
			}
			u.Nodes[i].Status.Learned = nil
		}
	}
	for i := range want.Nodes {
		want.Nodes[i].Status.Learned = nil
	}
	if diff := cmp.Diff([]mesh.Update{want}, got, meaning()); diff != "" {
		t.Errorf("remembered (-want +got):\n%.2000s", diff)
	}
}

func TestMemoryDoesNotSaveWhatItWouldNotLoad(t *testing.T) {
	m := Memory{filepath.Join(t.TempDir(), "facts")}
	must(t, m.Save(remembered(t)))
	if err := m.write(make([]byte, maxMemory+1)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v, want an error", err)
	}
	if got, err := m.Load(); err != nil || len(got) != 2 {
		t.Errorf("%d updates, %v: want those of before", len(got), err)
	}
}

func TestANodeWithoutAManifestIsYoungerThanAll(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "status"), 0o755))
	write(t, filepath.Join(dir, "b.yaml"), node("b", "location: l"))
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(dir, "status", name+".yaml"), status(name, ""))
	}
	u, err := Load(dir)
	must(t, err)
	if len(u.Nodes) != 2 || !u.Nodes[0].Undeclared || u.Nodes[1].Undeclared || !u.Nodes[1].Older(u.Nodes[0].Identity) {
		t.Errorf("nodes: %+v", u.Nodes)
	}
}

func TestNamesThatCannotBePublishedAreNamedWithTheRemedy(t *testing.T) {
	for name, remedy := range map[string]string{
		"Ada.Example": "ada.example", "ada_1": "lower case", "": "lower case", "-": "lower case", strings.Repeat("a", 254): "at most 253",
		"node-1.example": "", "a": "",
	} {
		err := scan.CheckName(name)
		if remedy == "" && err != nil || remedy != "" && (err == nil || !strings.Contains(err.Error(), remedy)) {
			t.Errorf("%q: %v, want %q", name, err, remedy)
		}
	}
}

func TestAKeyThatIsADirectoryIsNamedSo(t *testing.T) {
	path := t.TempDir()
	_, _, err := Key(path)
	if err == nil || !strings.Contains(err.Error(), path+" is a directory") || strings.Contains(err.Error(), "chmod") {
		t.Errorf("%v, want the remedy", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
