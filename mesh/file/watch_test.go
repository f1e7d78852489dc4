package file

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/mesh"
)

// locations are the nodes with their locations: "a=berlin b=".
func locations(u mesh.Update) string {
	var all []string
	for _, n := range u.Nodes {
		all = append(all, n.Name+"="+n.Spec.Location)
	}
	return strings.Join(all, " ")
}

func (r *running) untilLocations(want string) mesh.Update {
	r.t.Helper()
	return r.until(want, func(u mesh.Update) bool { return u.Down == "" && locations(u) == want })
}

func (r *running) untilDown() mesh.Update {
	r.t.Helper()
	return r.until("the directory to be down", func(u mesh.Update) bool { return u.Down != "" })
}

// swap replaces what a mounted ConfigMap holds, in the steps of the kubelet.
func swap(t *testing.T, dir, generation string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		write(t, filepath.Join(dir, generation, name), text)
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Symlink(generation, dir+"/..data_tmp"), os.Rename(dir+"/..data_tmp", dir+"/..data"))
	for name := range files {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

func TestEveryWayToChangeAFileIsSeen(t *testing.T) {
	for _, tc := range []struct {
		name   string
		setup  func(t *testing.T, dir string) // leaves a=1
		change func(t *testing.T, dir string) // leaves a=2
		again  func(t *testing.T, dir string) // leaves a=3; nil: a.yaml is written
	}{
		{"written in place", nil, func(t *testing.T, dir string) {
			write(t, dir+"/a.yaml", node("a", "location: 2"))
		}, nil},
		{"replaced by rename, as editors do", nil, func(t *testing.T, dir string) {
			write(t, dir+"/.a.yaml.swp", node("a", "location: 2"))
			must(t, os.Rename(dir+"/.a.yaml.swp", dir+"/a.yaml"))
		}, nil},
		{"moved aside and written anew", nil, func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/a.yaml", dir+"/a.yaml~"))
			write(t, dir+"/a.yaml", node("a", "location: 2"))
		}, nil},
		{"of the same size and time", func(t *testing.T, dir string) {
			write(t, dir+"/a.yaml", node("a", "location: 1"))
			must(t, os.Chtimes(dir+"/a.yaml", time.Unix(1, 0), time.Unix(1, 0)))
		}, func(t *testing.T, dir string) {
			write(t, dir+"/a.yaml", node("a", "location: 2"))
			must(t, os.Chtimes(dir+"/a.yaml", time.Unix(1, 0), time.Unix(1, 0)))
		}, nil},
		{"under another name", nil, func(t *testing.T, dir string) {
			write(t, dir+"/b.json", `{"apiVersion":"stillwire.dev/v1alpha1","kind":"MeshNode","metadata":{"name":"a"},"spec":{"location":"2"}}`)
			must(t, os.Remove(dir+"/a.yaml"))
		}, func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/b.json"))
			write(t, dir+"/a.yaml", node("a", "location: 3"))
		}},
		{"..data link of a ConfigMap swapped", func(t *testing.T, dir string) {
			swap(t, dir, "..2026_1", map[string]string{"a.yaml": node("a", "location: 1")})
		}, func(t *testing.T, dir string) {
			swap(t, dir, "..2026_2", map[string]string{"a.yaml": node("a", "location: 2")})
		}, func(t *testing.T, dir string) {
			swap(t, dir, "..2026_3", map[string]string{"a.yaml": node("a", "location: 3")})
		}},
		{"behind a link to another folder", func(t *testing.T, dir string) {
			write(t, dir+"-other/a.yaml", node("a", "location: 1"))
			must(t, os.Symlink(dir+"-other/a.yaml", dir+"/a.yaml"))
		}, func(t *testing.T, dir string) {
			write(t, dir+"-other/a.yaml", node("a", "location: 2"))
		}, nil},
		{"directory replaced by another", nil, func(t *testing.T, dir string) {
			write(t, dir+"-new/a.yaml", node("a", "location: 2"))
			must(t, os.Rename(dir, dir+"-old"), os.Rename(dir+"-new", dir))
		}, nil},
		{"directory is a link that is swapped", func(t *testing.T, dir string) {
			write(t, dir+"-1/a.yaml", node("a", "location: 1"))
			must(t, os.Remove(dir), os.Symlink(dir+"-1", dir))
		}, func(t *testing.T, dir string) {
			write(t, dir+"-2/a.yaml", node("a", "location: 2"))
			must(t, os.Symlink(dir+"-2", dir+"-tmp"), os.Rename(dir+"-tmp", dir))
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "mesh")
			must(t, os.Mkdir(dir, 0o755))
			if tc.setup == nil {
				write(t, dir+"/a.yaml", node("a", "location: 1"))
			} else {
				tc.setup(t, dir)
			}
			r := start(t, New(Options{Dir: dir}))
			r.untilLocations("a=1")
			tc.change(t, dir)
			r.untilLocations("a=2")
			if tc.again == nil {
				write(t, dir+"/a.yaml", node("a", "location: 3"))
			} else {
				tc.again(t, dir)
			}
			if u := r.untilLocations("a=3"); len(u.Problems) > 0 || !u.Synced {
				t.Errorf("synced %v, problems %v", u.Synced, u.Problems)
			}
		})
	}
}

func TestHalfWrittenFileKeepsWhatItSaid(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", node("a", "location: 1")+"---\n"+node("b", ""))
	r := start(t, New(Options{Dir: dir}))
	r.untilLocations("a=1 b=")
	write(t, dir+"/a.yaml", "apiVersion: stillwire.dev/v1alpha1\nkind: {MeshNode\n")
	u := r.next()
	if got := locations(u); got != "a=1 b=" || !u.Synced {
		t.Errorf("nodes %q, synced %v: want those of before", got, u.Synced)
	}
	if len(u.Problems) != 1 || u.Problems[0].Subject != (mesh.Subject{Kind: mesh.KindSource, Name: "a.yaml", Source: "a.yaml:2"}) {
		t.Errorf("problems %v: want one with file and line", u.Problems)
	}
	write(t, dir+"/a.yaml", node("a", "location: 2"))
	if u := r.untilLocations("a=2"); len(u.Problems) > 0 {
		t.Errorf("problems %v remain", u.Problems)
	}
}

func TestUnreadableFileKeepsWhatItSaid(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", node("a", "location: 1"))
	r := start(t, New(Options{Dir: dir}))
	r.untilLocations("a=1")
	must(t, os.Symlink("nowhere", dir+"/tmp"), os.Rename(dir+"/tmp", dir+"/a.yaml"))
	u := r.next()
	if locations(u) != "a=1" || len(u.Problems) != 1 {
		t.Errorf("nodes %q, problems %v: want that of before and one problem", locations(u), u.Problems)
	}
	must(t, os.Remove(dir+"/a.yaml"), syscall.Mkfifo(dir+"/a.yaml", 0o600))
	u = r.next()
	if locations(u) != "a=1" || len(u.Problems) != 1 || !strings.Contains(u.Problems[0].Detail, "no regular file") {
		t.Errorf("nodes %q, problems %v: want that of before and one problem", locations(u), u.Problems)
	}
}

func TestBadSettingsKeepThoseOfBefore(t *testing.T) {
	dir := t.TempDir()
	settings := "apiVersion: stillwire.dev/v1alpha1\nkind: Mesh\nmetadata: {name: default}\nspec: {topology: %s}\n"
	write(t, dir+"/mesh.yaml", fmt.Sprintf(settings, "cross"))
	r := start(t, New(Options{Dir: dir}))
	r.next()
	write(t, dir+"/mesh.yaml", fmt.Sprintf(settings, "crossed"))
	u := r.next()
	if u.Settings == nil || u.Settings.Topology != mesh.Cross || len(u.Problems) != 1 || !u.Synced {
		t.Errorf("settings %+v, synced %v, problems %v: want those of before and one problem", u.Settings, u.Synced, u.Problems)
	}
	write(t, dir+"/mesh.yaml", fmt.Sprintf(settings, "full"))
	if u := r.next(); u.Settings == nil || u.Settings.Topology != mesh.Full || len(u.Problems) > 0 {
		t.Errorf("settings %+v, problems %v", u.Settings, u.Problems)
	}
}

func TestRemovedFileIsConfirmedAtASecondLook(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", node("a", ""))
	write(t, dir+"/b.yaml", node("b", ""))
	r := start(t, New(Options{Dir: dir}))
	confirmed := func(u mesh.Update) bool { return u.Confirmed }
	r.until("the first look to be confirmed", confirmed)
	must(t, os.Remove(dir+"/b.yaml"))
	if u := r.any(); u.Confirmed || !u.Synced || locations(u) != "a=" {
		t.Errorf("nodes %q, confirmed %v: want a alone, to be confirmed later", locations(u), u.Confirmed)
	}
	if u := r.any(); !u.Confirmed || locations(u) != "a=" {
		t.Errorf("nodes %q, confirmed %v: want a alone, confirmed", locations(u), u.Confirmed)
	}
}

func TestDirectoryThatComesLateIsConfirmedToo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mesh")
	r := start(t, New(Options{Dir: dir}))
	r.untilDown()
	write(t, dir+"-new/a.yaml", "{")
	must(t, os.Rename(dir+"-new", dir))
	if u := r.next(); u.Down != "" || u.Synced {
		t.Errorf("down %q, synced %v: want it to be there, with a file that cannot be read", u.Down, u.Synced)
	}
	write(t, dir+"/a.yaml", node("a", ""))
	if u := r.untilLocations("a="); !u.Synced || u.Confirmed {
		t.Errorf("synced %v, confirmed %v", u.Synced, u.Confirmed)
	}
	if u := r.any(); !u.Confirmed || locations(u) != "a=" {
		t.Errorf("confirmed %v, nodes %q", u.Confirmed, locations(u))
	}
}

func TestDirectoryThatIsGoneIsDownAndComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "mesh")
	r := start(t, New(Options{Dir: dir}))
	if u := r.next(); !strings.Contains(u.Down, "no such file or directory") || u.Synced {
		t.Errorf("down %q, synced %v: want it to be down at first", u.Down, u.Synced)
	}
	write(t, dir+"/a.yaml", node("a", "location: 1"))
	r.untilLocations("a=1")
	must(t, os.RemoveAll(filepath.Dir(dir)))
	r.untilDown()
	write(t, dir+"/a.yaml", node("a", "location: 2"))
	r.untilLocations("a=2")
	write(t, dir+"/a.yaml", node("a", "location: 3"))
	r.untilLocations("a=3")
}

func TestEmptyDirectoryInThePlaceOfAFullOneIsDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mesh")
	write(t, dir+"/a.yaml", node("a", "location: 1"))
	r := start(t, New(Options{Dir: dir}))
	r.untilLocations("a=1")
	must(t, os.Rename(dir, dir+"-old"), os.Mkdir(dir, 0o755))
	if u := r.untilDown(); !strings.Contains(u.Down, "another directory") && !strings.Contains(u.Down, "no such file") {
		t.Errorf("down %q", u.Down)
	}
	write(t, dir+"/a.yaml", node("a", "location: 2"))
	r.untilLocations("a=2")
}

func TestWhatChangesNothingGivesNoUpdate(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", node("a", ""))
	var updates []mesh.Update
	l := &lookout{folder: newFolder(dir), watch: newWatch(New(Options{Dir: dir})), put: func(u mesh.Update) { updates = append(updates, u) }}
	defer l.watch.close()
	l.turn()
	for _, change := range []struct {
		name string
		make func()
	}{
		{"nothing", func() {}},
		{"touched", func() { must(t, os.Chtimes(dir+"/a.yaml", time.Now(), time.Now())) }},
		{"written as it was", func() { write(t, dir+"/a.yaml", node("a", "")) }},
		{"replaced by an equal one", func() {
			write(t, dir+"/tmp", node("a", ""))
			must(t, os.Rename(dir+"/tmp", dir+"/a.yaml"))
		}},
		{"an editor's file", func() { write(t, dir+"/.a.yaml.swp", node("x", "")) }},
		{"an editor's copy", func() { write(t, dir+"/a.yaml~", node("x", "")) }},
		{"a text", func() { write(t, dir+"/README.md", "x") }},
		{"an empty manifest", func() { write(t, dir+"/empty.yaml", "# nothing yet\n") }},
		{"a folder", func() { must(t, os.Mkdir(dir+"/folder.yaml", 0o755)) }},
		{"no status yet", func() { must(t, os.Mkdir(dir+"/status", 0o755)) }},
		{"a status that is being written", func() { write(t, dir+"/status/.x.yaml123", node("x", "")) }},
	} {
		change.make()
		l.folder.fresh["a.yaml"] = true
		l.turn()
		if len(updates) != 1 {
			t.Fatalf("%s: gave an update: %+v", change.name, updates[len(updates)-1])
		}
	}
	write(t, dir+"/a.yaml", node("a", "location: 1"))
	if l.turn(); len(updates) != 2 {
		t.Error("a change gave no update")
	}
}

func TestFilesBesideTheManifestsAreNoReasonToLook(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	write(t, dir+"/status/a.yaml", node("a", ""))
	write(t, dir+"/a.yaml", node("a", ""))
	w := newWatch(New(Options{Dir: dir}))
	defer w.close()
	w.arm(nil)
	for name, want := range map[string]bool{
		"a.yaml": true, "b.yml": true, "c.json": true, "d.conf": true, "status": true, "status/a.yaml": true, "": true,
		".a.yaml.swp": false, "a.yaml~": false, "4913": false, "#a.yaml#": false, "README.md": false, "status/.a.yaml99": false, "other/a.yaml": false,
	} {
		if got := w.matters(filepath.Join(dir, name)); got != want {
			t.Errorf("%q matters: %v, want %v", name, got, want)
		}
	}
}

func TestChangedKeyFileIsSeen(t *testing.T) {
	dir := t.TempDir()
	keyFile := dir + "/secrets/laptop.psk"
	write(t, dir+"/laptop.yaml", "apiVersion: stillwire.dev/v1alpha1\nkind: Peer\nmetadata: {name: laptop}\nspec: {publicKey: "+key(1).String()+", presharedKeyFile: secrets/laptop.psk}\n")
	write(t, dir+"/phone.conf", "[Peer]\nPublicKey = "+key(2).String()+"\nPresharedKeyFile = secrets/laptop.psk\n")
	r := start(t, New(Options{Dir: dir}))
	if u := r.next(); len(u.Peers) != 0 || len(u.Problems) != 2 {
		t.Fatalf("peers %v, problems %v: want none without the key file", peerNames(u), u.Problems)
	}
	must(t, os.Mkdir(dir+"/secrets", 0o700), os.WriteFile(keyFile, []byte(key(3).String()+"\n"), 0o600))
	both := func(u mesh.Update) bool { return len(u.Peers) == 2 }
	first := r.until("both peers", both).Peers
	must(t, os.WriteFile(keyFile, []byte(key(4).String()+"\n"), 0o600))
	second := r.until("the new key", func(u mesh.Update) bool {
		return both(u) && !u.Peers[0].PresharedKey.Equal(first[0].PresharedKey)
	}).Peers
	if !second[0].PresharedKey.Equal(second[1].PresharedKey) {
		t.Error("the wg-quick file keeps the old key")
	}
}

func TestAThousandNodesAreFollowed(t *testing.T) {
	const nodes = 1000
	dir := t.TempDir()
	for i := range nodes {
		write(t, fmt.Sprintf("%s/node-%d.yaml", dir, i), node(fmt.Sprintf("node-%d", i), "location: l"))
	}
	r := start(t, New(Options{Dir: dir}))
	if u := r.next(); len(u.Nodes) != nodes {
		t.Fatalf("%d nodes, want %d", len(u.Nodes), nodes)
	}
	began := time.Now()
	for i := range nodes {
		write(t, fmt.Sprintf("%s/status/.tmp", dir), status(fmt.Sprintf("node-%d", i), fmt.Sprintf("leads: %d", i+1)))
		must(t, os.Rename(dir+"/status/.tmp", fmt.Sprintf("%s/status/node-%d.yaml", dir, i)))
	}
	u := r.until("all statuses", func(u mesh.Update) bool {
		return !slices.ContainsFunc(u.Nodes, func(n mesh.Node) bool { return n.Status.Leads == 0 })
	})
	if len(u.Nodes) != nodes {
		t.Errorf("%d nodes, want %d", len(u.Nodes), nodes)
	}
	t.Logf("%d statuses were written and seen in %v", nodes, time.Since(began).Round(time.Millisecond))
}

func TestWithoutInotifyTheDirectoryIsPolled(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", node("a", "location: 1"))
	s := New(Options{Dir: dir})
	var granted atomic.Bool
	s.notify = func() (*fsnotify.Watcher, error) {
		if granted.Load() {
			return fsnotify.NewWatcher()
		}
		return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE)
	}
	r := start(t, s)
	u := r.next()
	if len(u.Problems) != 1 || u.Problems[0].Reason != mesh.Unsupported || !strings.Contains(u.Problems[0].Remedy, "fs.inotify.max_user_instances") {
		t.Errorf("problems %v: want the sysctl to be named", u.Problems)
	}
	write(t, dir+"/a.yaml", node("a", "location: 2"))
	r.untilLocations("a=2")
	granted.Store(true)
	r.until("the problem to end", func(u mesh.Update) bool { return len(u.Problems) == 0 })
	write(t, dir+"/a.yaml", node("a", "location: 3"))
	r.untilLocations("a=3")
}

func TestLostEventsMakeAllFilesBeReadAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", node("a", "location: 1"))
	old := time.Unix(1, 0)
	must(t, os.Chtimes(dir+"/a.yaml", old, old))
	f := newFolder(dir)
	f.look()
	write(t, dir+"/a.yaml", node("a", "location: 2"))
	must(t, os.Chtimes(dir+"/a.yaml", old, old))
	if got := locations(f.look()); got != "a=1" {
		t.Fatalf("nodes %q: want a file of the same size and time not to be read", got)
	}
	f.all = true
	if got := locations(f.look()); got != "a=2" {
		t.Errorf("nodes %q: want it to be read", got)
	}
}

func TestOverflowOfEventsIsAReasonToReadAll(t *testing.T) {
	dir := t.TempDir()
	l := &lookout{folder: newFolder(dir), watch: newWatch(New(Options{Dir: dir})), put: func(mesh.Update) {}}
	l.turn()
	sent := make(chan struct{})
	go func() { defer close(sent); l.watch.fs.Errors <- fsnotify.ErrEventOverflow }()
	for !l.folder.all {
		if !l.watch.wait(t.Context(), l) {
			t.Fatal("the wait ended")
		}
	}
	<-sent
	l.watch.close()
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	old := time.Unix(1, 0)
	for _, name := range []string{"a", "b"} {
		write(t, dir+"/"+name+".yaml", node(name, ""))
		must(t, os.Chtimes(dir+"/"+name+".yaml", old, old))
	}
	f := newFolder(dir)
	f.look()
	before := *f.files["a.yaml"]
	write(t, dir+"/b.yaml", node("b", "location: 2"))
	f.look()
	if after := f.files["a.yaml"]; !after.read.Equal(before.read) {
		t.Error("a.yaml was read again as b.yaml changed")
	}
}

func TestUnwatchableFolderIsNamed(t *testing.T) {
	w := newWatch(New(Options{Dir: "/etc/mesh"}))
	w.blind = fmt.Errorf("watch /etc/mesh: %w", syscall.ENOSPC)
	want := []string{"source files (/etc/mesh): cannot be watched (watch /etc/mesh: no space left on device), so they are looked at every 2s: raise the sysctl fs.inotify.max_user_watches"}
	var got []string
	for _, p := range w.problems() {
		got = append(got, p.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
