package file

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh"
)

// BenchmarkLook is one look at a mesh of a thousand nodes of which one changed.
func BenchmarkLook(b *testing.B) {
	const nodes = 1000
	dir := b.TempDir()
	if err := os.Mkdir(dir+"/status", 0o755); err != nil {
		b.Fatal(err)
	}
	text, old := "", time.Unix(1, 0)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		text += "---\n" + node(name, "location: l")
		if err := os.WriteFile(dir+"/status/"+name+".yaml", []byte(status(name, "")), 0o644); err != nil {
			b.Fatal(err)
		}
		_ = os.Chtimes(dir+"/status/"+name+".yaml", old, old)
	}
	if err := os.WriteFile(dir+"/nodes.yaml", []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	_ = os.Chtimes(dir+"/nodes.yaml", old, old)
	l := &lookout{folder: newFolder(dir), watch: newWatch(New(Options{Dir: dir})), put: func(mesh.Update) {}}
	defer l.watch.close()
	l.turn()
	for i := 0; b.Loop(); i++ {
		if err := os.WriteFile(dir+"/status/node-1.yaml", []byte(status("node-1", fmt.Sprintf("leads: %d", i))), 0o644); err != nil {
			b.Fatal(err)
		}
		l.folder.fresh["node-1.yaml"] = true
		l.turn()
	}
}
