package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2/maybe"

	"github.com/stillwire/stillwire/mesh"
)

// Memory keeps the facts of an agent in one file, of mode 0600 as it may hold preshared keys:
// with it a node forwards again before any source has answered. It is a mesh.Memory.
type Memory struct {
	Path string
}

// memoryHead begins the file; the checksum of all after its line stands behind it.
const memoryHead = "# stillwire facts 1 sha256:"

// sourceHead begins what is kept of one source.
const sourceHead = "# source "

// Save replaces the file: a temporary file, fsync, rename.
func (m Memory) Save(updates []mesh.Update) error {
	var body bytes.Buffer
	for _, u := range updates {
		fmt.Fprintf(&body, "%s%s\n", sourceHead, u.Source)
		if err := Write(&body, u, WithSecrets); err != nil {
			return err
		}
	}
	head := fmt.Sprintf("%s%x\n", memoryHead, sha256.Sum256(body.Bytes()))
	if err := os.MkdirAll(filepath.Dir(m.Path), 0o700); err != nil {
		return err
	}
	return maybe.WriteFile(m.Path, append([]byte(head), body.Bytes()...), 0o600)
}

// Load returns what Save was given, nothing when there is no file, and an error when the file
// is not as Save wrote it.
func (m Memory) Load() ([]mesh.Update, error) {
	text, err := os.ReadFile(m.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	head, body, _ := strings.Cut(string(text), "\n")
	if head != fmt.Sprintf("%s%x", memoryHead, sha256.Sum256([]byte(body))) {
		return nil, fmt.Errorf("%s is damaged or of another version: it is ignored, and written anew when the sources have answered", m.Path)
	}
	var updates []mesh.Update
	for part := range strings.SplitSeq("\n"+body, "\n"+sourceHead) {
		name, documents, _ := strings.Cut(part, "\n")
		if name == "" {
			continue // before the first
		}
		u, err := Read(filepath.Base(m.Path), strings.NewReader(documents))
		if err != nil {
			return nil, err
		}
		updates = append(updates, mesh.Update{Source: name, Nodes: u.Nodes, Peers: u.Peers, Settings: u.Settings})
	}
	return updates, nil
}
