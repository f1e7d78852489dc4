//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroups is where each hierarchy of version 1 has a folder.
const cgroups = "/sys/fs/cgroup"

// hierarchies returns the names of those folders: cpu, memory, ...
func hierarchies() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(cgroups, "*", "tasks"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no cgroups of version 1 in %s", cgroups)
	}
	for i, path := range found {
		found[i] = filepath.Base(filepath.Dir(path))
	}
	return found, err
}

// makeCgroup makes a cgroup, such as tests/n1, in all hierarchies.
func makeCgroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.MkdirAll(filepath.Join(cgroups, h, name), 0o755); err != nil {
			return err
		}
	}
	if slices.Contains(all, "cpuset") {
		return fillCpuset(name)
	}
	return nil
}

// fillCpuset gives the cgroup and those above it all processors and memory: a fresh one has none,
// and takes no process.
func fillCpuset(name string) error {
	at := filepath.Join(cgroups, "cpuset")
	for part := range strings.SplitSeq(name, "/") {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			have, err := os.ReadFile(filepath.Join(at, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(at, part, file), have, 0o644); err != nil {
				return err
			}
		}
		at = filepath.Join(at, part)
	}
	return nil
}

// joinCgroup puts the calling thread into the cgroup, and so what it starts from now on.
func joinCgroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(cgroups, h, name, "tasks"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("join cgroup %s: %w", name, err)
		}
	}
	return nil
}

// removeCgroup removes a cgroup and those in it, once their last processes are gone. None is
// success.
func removeCgroup(ctx context.Context, name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	return poll(ctx, func() (err error) {
		for _, h := range all {
			err = errors.Join(err, removeTree(filepath.Join(cgroups, h, name)))
		}
		return err
	})
}

// removeTree removes folders from the leaves up. The files of a cgroup go with its folder.
func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
