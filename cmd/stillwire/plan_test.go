package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const threeNodes = `
apiVersion: stillwire.dev/v1alpha1
kind: MeshNode
metadata: {name: a}
spec: {location: x, endpoint: "192.0.2.1:51820", internalIPs: [192.0.2.1]}
---
apiVersion: stillwire.dev/v1alpha1
kind: MeshNode
metadata: {name: b}
spec: {location: x, internalIPs: [192.0.2.2]}
---
apiVersion: stillwire.dev/v1alpha1
kind: MeshNode
metadata: {name: c}
spec: {location: y, endpoint: "198.51.100.1:51820"}
`

func TestPlanOfADirectoryHasTheFlagsOfItsAgents(t *testing.T) {
	mesh := `---
apiVersion: stillwire.dev/v1alpha1
kind: Mesh
metadata: {name: default}
spec: {topology: full}
`
	for _, tt := range []struct {
		name, text string
		flags      []string
		peers      int // of b
	}{
		{"by default all have tunnels", threeNodes, nil, 2},
		{"in the location topology the leader alone", threeNodes, []string{"--topology", "location"}, 0},
		{"what the mesh says goes before", threeNodes + mesh, []string{"--topology", "location"}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "mesh.yaml"), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			p := &program{stdout: &out, stderr: &out}
			if code := p.run(append([]string{"plan", "--dir", dir, "--node", "b"}, tt.flags...)); code != exitDone {
				t.Fatalf("code %d: %s", code, out.String())
			}
			if got := strings.Count(out.String(), "[Peer]"); got != tt.peers {
				t.Errorf("%d peers, want %d:\n%s", got, tt.peers, out.String())
			}
		})
	}
}
