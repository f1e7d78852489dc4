//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Kubectl runs the kubectl of the API server's release as the administrator, and returns what it wrote. The error
// holds the arguments and what it complained of.
func (c *Cluster) Kubectl(t testing.TB, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return c.kubectl(t.Context(), "", args)
}

// Apply has kubectl apply the documents, each a manifest or many, and fails the test when
// one is refused.
func (c *Cluster) Apply(t testing.TB, manifests ...string) {
	t.Helper()
	if err := c.ApplyAll(t.Context(), manifests...); err != nil {
		t.Fatal(err)
	}
}

// ApplyAll is Apply where there is no test yet.
func (c *Cluster) ApplyAll(ctx context.Context, manifests ...string) error {
	// kubectl takes what begins with a brace for JSON, but YAML may as well.
	input := "---\n" + strings.Join(manifests, "\n---\n")
	_, _, err := c.kubectl(ctx, input, []string{"apply", "-f", "-"})
	return err
}

// DryRun asks the API server what it would say of a manifest, and changes nothing. A field that it
// does not know is an error.
func (c *Cluster) DryRun(ctx context.Context, manifest string) error {
	_, _, err := c.kubectl(ctx, "---\n"+manifest, []string{"apply", "--dry-run=server", "--validate=strict", "-f", "-"})
	return err
}

func (c *Cluster) kubectl(ctx context.Context, input string, args []string) (string, string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.box, append([]string{"kubectl"}, args...)...)
	// The home folder is where kubectl keeps what it learned of a cluster.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig("admin"), "HOME="+c.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), stderr.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), stderr.String(), nil
}
