//go:build linux

package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tunables are what a kubelet sets in the kernel, which all nodes and the machine share. Plain
// files with the values it wants lie over them.
func tunables() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// mount makes the file system of the node: the machine's, but for what programs keep in /run,
// /var/lib and /var/log, and for what the kernel tells of namespaces.
func (n *Node) mount(ctx context.Context) error {
	if err := n.Do(n.mountOwn); err != nil {
		return err
	}
	// It shows the processes of the namespace that the one who mounts it is in, and a thread that
	// entered is not.
	if _, err := n.Exec(ctx, "mount", "-t", "proc", "proc", "/proc"); err != nil {
		return err
	}
	return n.Do(n.hideTunables)
}

func (n *Node) mountOwn() error {
	if err := unix.Sethostname([]byte(n.name)); err != nil {
		return err
	}
	// Nothing of this shall be seen outside; then, within, containers shall see what comes.
	for _, flags := range []uintptr{unix.MS_REC | unix.MS_PRIVATE, unix.MS_REC | unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", flags, ""); err != nil {
			return fmt.Errorf("set the propagation of mounts: %w", err)
		}
	}
	if err := n.bindCgroups(); err != nil {
		return err
	}
	for at, what := range map[string]string{"/var/lib": "lib", "/var/log": "log"} {
		if err := bind(filepath.Join(n.dir, what), at); err != nil {
			return err
		}
	}
	return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
}

// bindCgroups has the node see its own cgroup as the root of each hierarchy, in a /sys that shows
// its own links.
func (n *Node) bindCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	staging := filepath.Join(n.dir, "cgroup")
	for _, h := range all {
		if err := os.MkdirAll(filepath.Join(staging, h), 0o755); err != nil {
			return err
		}
		if err := bind(filepath.Join(cgroups, h, n.cgroup), filepath.Join(staging, h)); err != nil {
			return err
		}
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return bind(staging, cgroups)
}

func (n *Node) hideTunables() error {
	for name, value := range tunables() {
		plain := filepath.Join(n.dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(plain, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(plain, filepath.Join("/proc/sys", name)); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	return nil
}
