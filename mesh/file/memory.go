package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
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
	return m.write(body.Bytes())
}

// write writes nothing that Load would not read.
func (m Memory) write(body []byte) error {
	if len(body) > maxMemory {
		return fmt.Errorf("%s is not written: the facts are larger than %d bytes", m.Path, maxMemory)
	}
	head := fmt.Sprintf("%s%x\n", memoryHead, sha256.Sum256(body))
	if err := os.MkdirAll(filepath.Dir(m.Path), 0o700); err != nil {
		return err
	}
	return maybe.WriteFile(m.Path, append([]byte(head), body...), 0o600)
}

// Load returns what Save was given, nothing when there is no file, and an error when the file
// is not as Save wrote it.
func (m Memory) Load() ([]mesh.Update, error) {
	text, _, err := slurp(m.Path, maxMemory+int64(len(memoryHead))+2*sha256.Size+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %s", m.Path, cause(err))
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
		u := m.read(documents)
		updates = append(updates, mesh.Update{Source: name, Nodes: u.Nodes, Peers: u.Peers, Settings: u.Settings})
	}
	return updates, nil
}

// read reads what is known to be of our own making, as the checksum tells: without the bounds on
// what others may write.
func (m Memory) read(documents string) mesh.Update {
	r := newReader(filepath.Base(m.Path), filepath.Dir(m.Path))
	r.private, r.most, r.left = true, math.MaxInt, math.MaxInt
	r.readDocuments([]byte(documents))
	return merge([]content{r.content}, nil)
}
