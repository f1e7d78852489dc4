package file

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2/maybe"

	"github.com/stillwire/stillwire/mesh"
)

// Publish replaces what the node says of itself, in DIR/status/NODE.yaml: a temporary file,
// fsync, rename. A file that says so already is not written. The status holds no secret, and
// everybody may read it.
func (s *Source) Publish(ctx context.Context, node string, status mesh.NodeStatus) error {
	if !isName(node) {
		return fmt.Errorf("publish status of node %q: it is no name of an object", node)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := writeStatus(&text, node, status); err != nil {
		return fmt.Errorf("publish status of node %s: %w", node, err)
	}
	path := filepath.Join(s.dir, statusDir, node+".yaml")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text.Bytes()) {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !os.IsExist(err) {
		return fmt.Errorf("publish status of node %s: %w", node, err)
	}
	if err := maybe.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("publish status of node %s: %w", node, err)
	}
	return nil
}
