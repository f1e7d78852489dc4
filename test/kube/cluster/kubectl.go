//go:build linux

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Kubectl runs the real kubectl as the administrator, and returns what it wrote. The error
// holds the arguments and what it complained of.
func (c *Cluster) Kubectl(t testing.TB, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return c.kubectl(t, "", args)
}

// Apply has kubectl apply the documents, each a manifest or many, and fails the test when
// one is refused.
func (c *Cluster) Apply(t testing.TB, manifests ...string) {
	t.Helper()
	// kubectl takes what begins with a brace for JSON, but YAML may as well.
	input := "---\n" + strings.Join(manifests, "\n---\n")
	if _, _, err := c.kubectl(t, input, []string{"apply", "-f", "-"}); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) kubectl(t testing.TB, input string, args []string) (string, string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	// The home folder is where kubectl keeps what it learned of a cluster.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig("admin"), "HOME="+c.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), stderr.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), stderr.String(), nil
}
