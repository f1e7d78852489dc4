package file

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

func TestAKeyIsMadeOnceAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "key")
	key, made, err := Key(path)
	if err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	again, made, err := Key(path)
	if err != nil || made || !again.Equal(key) {
		t.Fatalf("the second time made %v, the same %v, %v", made, again.Equal(key), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".key*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestADamagedKeyIsAnErrorAndNotANewIdentity(t *testing.T) {
	for text, want := range map[string]string{"": "holds no private key", "garbage\n": "holds no private key"} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Key(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "garbage") {
			t.Errorf("%q: %v, want %q and no content", text, err, want)
		}
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("the file was changed to %d bytes", len(got))
		}
	}
}

func TestAKeyThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, _, err := Key(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Key(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("%v, want the remedy", err)
	}
}

func remembered(t *testing.T) []mesh.Update {
	psk, err := device.NewPresharedKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return []mesh.Update{
		{Source: "files", Peers: []mesh.Peer{{
			Identity: mesh.Identity{Name: "laptop"}, PublicKey: key.Public(), PresharedKey: psk,
			AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")},
		}}},
		{Source: "more files", Settings: &mesh.Settings{Topology: mesh.Cross}},
	}
}

func TestMemoryGivesBackWhatWasSaved(t *testing.T) {
	m := Memory{filepath.Join(t.TempDir(), "state", "facts")}
	if u, err := m.Load(); err != nil || u != nil {
		t.Fatalf("before anything was saved: %v, %v", u, err)
	}
	want := remembered(t)
	if err := m.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := m.Load()
	if err != nil || len(got) != 2 {
		t.Fatalf("%d updates, %v", len(got), err)
	}
	if got[0].Source != "files" || !got[0].Peers[0].PresharedKey.Equal(want[0].Peers[0].PresharedKey) || got[1].Settings.Topology != mesh.Cross {
		t.Errorf("got %+v", got)
	}
	if got[0].Synced || got[1].Synced {
		t.Error("what is remembered counts as what the source says")
	}
}

func TestADamagedMemoryIsAnErrorWithoutContent(t *testing.T) {
	m := Memory{filepath.Join(t.TempDir(), "facts")}
	if err := m.Save(remembered(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(m.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, len(text) / 2, len(text) - 1} {
		if err := os.WriteFile(m.Path, text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if u, err := m.Load(); err == nil || len(u) > 0 {
			t.Errorf("the first %d bytes give %d updates", cut, len(u))
		}
	}
}
