package file

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// FuzzRead wants of any text that reading it ends, that what is read can be written and read
// again, and that no problem spans lines or tells a key.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob("testdata/load/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data, strings.HasSuffix(file.Name, ".conf"))
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, quick bool) {
		name := filepath.Join(dir, "a.yaml")
		if quick {
			name = filepath.Join(dir, "a.conf")
		}
		u, err := Read(name, bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range u.Problems {
			checkProblem(t, p)
		}
		checkAgain(t, u)
	})
}

// keyLike is what a key in base64 or hexadecimal looks like.
var keyLike = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}=*`)

func checkProblem(t *testing.T, p mesh.Problem) {
	t.Helper()
	if p.Subject.Kind == "" || p.Subject.Source == "" || p.Reason == "" || p.Detail == "" || p.Remedy == "" {
		t.Errorf("a problem lacks something: %+v", p)
	}
	if s := p.String(); strings.ContainsAny(s, "\n\r\x00") || len(s) > 2000 {
		t.Errorf("a problem is no line of text: %q", s)
	}
	_, err := device.ParsePublicKey(p.Value)
	if keyLike.MatchString(p.Value) && (p.Field != "PublicKey" || err != nil) {
		t.Errorf("a problem shows what may be a key: %s", p)
	}
}

func checkAgain(t *testing.T, u mesh.Update) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, u, WithSecrets); err != nil {
		t.Fatal(err)
	}
	again, err := Read("again.yaml", bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	u.Problems, u.Synced = nil, true
	if diff := cmp.Diff(u, again, meaning()); diff != "" {
		t.Errorf("what is written is read differently (-want +got):\n%s\n%s", diff, &b)
	}
}

func TestAliasesOfAliasesEnd(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nx: &x0 [{kind: MeshNode, apiVersion: " + apiVersion + ", metadata: {name: a}, spec: {podCIDRs: &p [")
	b.WriteString(strings.Repeat("10.0.0.0/8, ", 1000) + "]}}]\nitems:\n")
	for i := range 10000 {
		fmt.Fprintf(&b, "- {kind: MeshNode, apiVersion: %s, metadata: {name: n%d}, spec: {podCIDRs: *p}}\n", apiVersion, i)
	}
	u, err := Read("bomb.yaml", strings.NewReader(b.String()))
	must(t, err)
	prefixes := 0
	for _, n := range u.Nodes {
		prefixes += len(n.PodCIDRs)
	}
	if prefixes > maxNodes {
		t.Errorf("%d prefixes were made, want at most %d", prefixes, maxNodes)
	}
	if len(u.Problems) == 0 || u.Synced {
		t.Errorf("synced %v with problems %v: want it to be told that the rest is not read", u.Synced, u.Problems)
	}
}

func TestFileOfProblemsTellsTheFirst(t *testing.T) {
	u, err := Read("a.yaml", strings.NewReader(strings.Repeat("- x\n---\n", 10*maxProblems)))
	must(t, err)
	if len(u.Problems) != maxProblems+1 || !strings.Contains(u.Problems[maxProblems].Detail, "more problems") {
		t.Errorf("%d problems, the last %v", len(u.Problems), u.Problems[len(u.Problems)-1])
	}
}

func TestExampleIsReadWithoutProblems(t *testing.T) {
	u, err := Load("../../examples/mesh")
	must(t, err)
	if len(u.Problems) > 0 || !u.Synced {
		t.Errorf("synced %v, problems %v", u.Synced, u.Problems)
	}
	got := fmt.Sprintln(nodeNames(u), peerNames(u), u.Settings.Topology)
	if want := "[berlin-1 berlin-2 home] [laptop] location\n"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}

func TestLoadOfNoDirectoryIsAnError(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("error %v", err)
	}
}

func TestStreamThatOthersCanReadHoldsNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer.yaml")
	text := "apiVersion: " + apiVersion + "\nkind: Peer\nmetadata: {name: a}\nspec: {publicKey: " + key(1).String() + ", presharedKey: " + key(2).String() + "}\n"
	for mode, want := range map[os.FileMode]int{0o600: 1, 0o640: 0, 0o604: 0} {
		must(t, os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode))
		f, err := os.Open(path)
		must(t, err)
		u, err := Read(path, f)
		must(t, err, f.Close())
		if len(u.Peers) != want || len(u.Problems) != 1-want {
			t.Errorf("mode %v: peers %v, problems %v", mode, peerNames(u), u.Problems)
		}
	}
}
