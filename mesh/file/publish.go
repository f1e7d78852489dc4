package file

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2/maybe"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// Publish replaces what the node says of itself, in DIR/status/NODE.yaml: a temporary file,
// fsync, rename. A file that says so already is not written. The status holds no secret, and
// everybody may read it. Learned endpoints that others would not read any more are left out.
func (s *Source) Publish(ctx context.Context, node string, status mesh.NodeStatus) error {
	if err := scan.CheckName(node); err != nil {
		return fmt.Errorf("publish status: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := statusText(node, status)
	if err != nil {
		return fmt.Errorf("publish status of node %s: %w", node, err)
	}
	path := filepath.Join(s.dir, statusDir, node+".yaml")
	if old, _, err := slurp(path, maxStatus); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !os.IsExist(err) {
		return fmt.Errorf("publish status of node %s: %w", node, err)
	}
	if err := maybe.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("publish status of node %s: %w", node, err)
	}
	return nil
}

// statusText leaves out half of the learned endpoints until the rest fits into a file that others
// read, those with the first keys for all.
func statusText(node string, status mesh.NodeStatus) ([]byte, error) {
	document := statusDocument(status)
	for {
		var text bytes.Buffer
		if err := writeStatus(&text, node, document); err != nil {
			return nil, err
		}
		if text.Len() <= maxStatus || len(document.Learned) == 0 {
			return text.Bytes(), nil
		}
		document.Learned = document.Learned[:len(document.Learned)/2]
	}
}
