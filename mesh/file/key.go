package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stillwire/stillwire/device"
)

// Key returns the private key that a file holds, and makes both when there is no file: others
// know a node by its key, so a damaged file is an error and never a reason for a new key.
func Key(path string) (key device.PrivateKey, made bool, err error) {
	key, err = readKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	if key, err = device.NewPrivateKey(); err != nil {
		return key, false, err
	}
	err = writeKey(path, key)
	if errors.Is(err, fs.ErrExist) { // another process was first
		key, err = readKey(path)
		return key, false, err
	}
	return key, err == nil, err
}

func readKey(path string) (device.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return device.PrivateKey{}, err
	}
	if !info.Mode().IsRegular() {
		what := "no regular file"
		if info.IsDir() {
			what = "a directory"
		}
		return device.PrivateKey{}, fmt.Errorf("%s is %s: name a file in a folder that outlives the process, which is made when it is not there", path, what)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return device.PrivateKey{}, fmt.Errorf("%s can be read by others, as it has mode %04o: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return device.PrivateKey{}, err
	}
	key, err := device.ParsePrivateKey(strings.TrimSpace(string(text)))
	if err != nil {
		return key, fmt.Errorf("%s holds no private key (%w): restore it from a copy, or remove it and give the new public key to all who know this node by the old one", path, err)
	}
	return key, nil
}

// writeKey makes the file whole under another name first: there is no moment at which a file of
// this name holds less than a key. A file that is there stays.
func writeKey(path string, key device.PrivateKey) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.WriteString(key.Reveal() + "\n"); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
