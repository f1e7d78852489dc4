//go:build linux

package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds a program of this repository, such as ./cmd/stillwire, as it is shipped: static, and
// without the race detector. The folder is that of the program's module, relative to the
// repository.
func Build(ctx context.Context, module, program, out string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", out, program)
	cmd.Dir = filepath.Join(root, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", program, err, output)
	}
	return nil
}

// repository is the folder of it that the working directory, a test's package, is in.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "test/kube/go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no test/kube/go.mod in %s or above", dir)
		}
	}
}
