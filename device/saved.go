package device

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2/maybe"
)

// savedVersion is the format of the state file.
const savedVersion = 1

// savedEndpoint is what one peer's endpoint was when it last spoke.
type savedEndpoint struct {
	Declared Endpoint       `json:"declared,omitzero"` // as configured then
	Live     netip.AddrPort `json:"live"`
}

// savedEndpoints is kept across restarts (requirement A8), so that a restarted device finds
// peers that roamed. It holds no secret.
type savedEndpoints map[PublicKey]savedEndpoint

// savedFile wraps the endpoints with a checksum: a torn or edited file is ignored, loudly.
type savedFile struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Peers   json.RawMessage `json:"peers"`
}

func savedPath(dir, name string) string { return filepath.Join(dir, name+".endpoints.json") }

// loadSaved returns no endpoints and no error when there is no file yet.
func loadSaved(path string) (savedEndpoints, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return savedEndpoints{}, nil
	}
	if err != nil {
		return savedEndpoints{}, err
	}
	var f savedFile
	if err := json.Unmarshal(b, &f); err != nil {
		return savedEndpoints{}, fmt.Errorf("%s: damaged, ignored: %w", path, err)
	}
	if f.Version != savedVersion {
		return savedEndpoints{}, fmt.Errorf("%s: version %d is not %d, ignored", path, f.Version, savedVersion)
	}
	if f.SHA256 != checksum(f.Peers) {
		return savedEndpoints{}, fmt.Errorf("%s: checksum does not match, ignored", path)
	}
	s := savedEndpoints{}
	if err := json.Unmarshal(f.Peers, &s); err != nil {
		return savedEndpoints{}, fmt.Errorf("%s: damaged, ignored: %w", path, err)
	}
	return s, nil
}

// save replaces the file in one step: temporary file, fsync, rename.
func (s savedEndpoints) save(path string) error {
	peers, err := json.Marshal(s)
	if err != nil {
		return err
	}
	b, err := json.Marshal(savedFile{Version: savedVersion, SHA256: checksum(peers), Peers: peers})
	if err != nil {
		return err
	}
	return maybe.WriteFile(path, append(b, '\n'), 0o600)
}

func checksum(b []byte) string {
	sum := sha256.Sum256(bytes.TrimSpace(b))
	return hex.EncodeToString(sum[:])
}

// saveWhenDue writes the state file when live endpoints may have moved. Changes are gathered
// for a second, or longer where reading the device is slow.
func (t *turn) saveWhenDue() {
	if t.saveDir == "" || !t.dirty.Load() {
		return
	}
	if t.saveAt.IsZero() {
		t.saveAt = t.now.Add(t.savePause)
	}
	if t.saveAt.After(t.now) {
		t.next = earlier(t.next, t.saveAt)
		return
	}
	t.saveAt = time.Time{}
	t.dirty.Store(false)
	if fresh, differs := t.remember(); differs {
		t.after = append(t.after, func() { t.write(fresh) })
	}
	t.savePause = max(saveAfter, 100*time.Since(t.now))
}

// saveNow is the last save, of Close. The lock is held.
func (d *Device) saveNow() {
	if d.saveDir == "" {
		return
	}
	if fresh, differs := d.remember(); differs {
		d.write(fresh)
	}
}

func (d *Device) write(s savedEndpoints) {
	if err := s.save(d.savePath()); err != nil {
		var path *fs.PathError // of the temporary file, which says nothing to people
		if errors.As(err, &path) {
			err = path.Err
		}
		d.log.Warn().Err(err).Str("file", d.savePath()).Msg("endpoints are not saved: peers that roam are found late after a restart")
	}
}

// remember takes in where the peers that spoke are now. Of those that have not, it keeps
// what was known.
func (d *Device) remember() (fresh savedEndpoints, differs bool) {
	seen, err := d.observe()
	if err != nil {
		return nil, false
	}
	fresh = savedEndpoints{}
	if !d.up {
		maps.Copy(fresh, d.saved)
	}
	for _, s := range seen.Peers {
		p := d.model.peers[s.PublicKey]
		old, known := d.saved[s.PublicKey]
		switch {
		case p != nil && p.path.spoke && s.Endpoint.IsValid():
			fresh[s.PublicKey] = savedEndpoint{Declared: s.Declared, Live: s.Endpoint}
		case known:
			fresh[s.PublicKey] = old
		}
	}
	differs = !maps.Equal(fresh, d.saved)
	d.saved = fresh
	return fresh, differs
}
