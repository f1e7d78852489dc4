//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// script builds the program that holds the components, from the repository's root.
const script = "test/kube/box/build.sh"

// buildBox puts the program at out, which is quick when it was built before.
func buildBox(ctx context.Context, out string) error {
	path, err := findScript()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, out)
	// The script waits for the compiler, which must end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, output)
	}
	return nil
}

// findScript looks in the working directory, which for a test is its package's, and above.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		path := filepath.Join(at, script)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no %s in %s or above", script, dir)
		}
	}
}
