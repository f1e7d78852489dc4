package kube

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stillwire/stillwire/mesh"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The goldens are plans and problems as an operator reads them, of objects as kubectl prints them.
func TestObjectsAreReadAsAnOperatorWouldSay(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			u, err := Read(filepath.Base(path), f, ReadOptions{Kilo: strings.Contains(path, "kilo")})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, n := range u.Nodes {
				fmt.Fprintf(&b, "node %s %+v pods %v ips %v notReady %v\n", n.Name, n.Spec, n.PodCIDRs, n.NodeIPs, n.NotReady)
			}
			for _, p := range u.Peers {
				fmt.Fprintf(&b, "peer %s %s %s %v %v psk %v\n", p.Name, p.PublicKey, p.Endpoint, p.AllowedIPs, p.MeshAddresses, !p.PresharedKey.IsZero())
			}
			for _, p := range u.Problems {
				fmt.Fprintf(&b, "problem %s: %s\n", p.Reason, p)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".golden", b.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestTextThatIsNoYAMLIsAnErrorWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"kind: [":               "read x: document 1 is neither YAML nor JSON",
		"kind: a\n---\n\tb: c":  "read x: document 2 is neither YAML nor JSON",
		`{"kind": "List", "x":`: "read x: document 1 is neither YAML nor JSON",
	} {
		if _, err := Read("x", strings.NewReader(text), ReadOptions{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Read(%q) = %v, want %q", text, err, want)
		}
	}
}

// Whatever is read, nothing crashes, each problem says what to do, no key is shown, and a plan can be
// made of the rest.
func FuzzRead(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.yaml") // none: the test above fails
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, strings.Contains(path, "kilo"))
	}
	f.Fuzz(func(t *testing.T, text []byte, kilo bool) {
		u, err := Read("x", strings.NewReader(string(text)), ReadOptions{Kilo: kilo})
		if err != nil {
			return
		}
		for _, p := range u.Problems {
			if p.Subject.Kind == "" || p.Reason == "" || p.Detail == "" || p.Remedy == "" || strings.ContainsAny(p.String(), "\n\r\x00") {
				t.Errorf("a problem lacks something: %+v", p)
			}
		}
		if len(u.Nodes) > 20 {
			return
		}
		for _, n := range u.Nodes {
			mesh.MakePlan(mesh.Snapshot{Nodes: u.Nodes, Peers: u.Peers}, n.Name, mesh.Options{})
		}
	})
}

// What Kilo's objects are turned into reads as what they say.
func TestKilosObjectsSayTheSameAsOurs(t *testing.T) {
	const path = "testdata/kilo.yaml"
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	manifests, problems, err := FromKilo("kilo.yaml", f, "", "stillwire")
	if err != nil || len(problems) == 0 {
		t.Fatalf("problems %v, %v", problems, err)
	}
	golden(t, "testdata/migrated.golden", manifests)
	ours, err := Read("migrated", strings.NewReader(manifests), ReadOptions{})
	if err != nil || len(ours.Problems) > 0 {
		t.Fatalf("ours: problems %v, %v", ours.Problems, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := Read("kilo", strings.NewReader(string(text)), ReadOptions{Kilo: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range theirs.Nodes {
		want := n.Spec
		if n.Name == "b" {
			want.Location = "" // of the label of its Node
		}
		if got := ours.Nodes[i].Spec; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("node %s is %+v, want %+v", n.Name, got, want)
		}
	}
	for i, p := range theirs.Peers {
		if got := ours.Peers[i]; fmt.Sprint(got.AllowedIPs, got.Endpoint, got.PublicKey, got.PersistentKeepalive, got.PresharedKey.Reveal() == p.PresharedKey.Reveal()) !=
			fmt.Sprint(p.AllowedIPs, p.Endpoint, p.PublicKey, p.PersistentKeepalive, true) {
			t.Errorf("peer %s is %+v, want %+v", p.Name, got, p)
		}
	}
}
