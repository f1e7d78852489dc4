//go:build linux

package nodes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// starterEnv makes this program one that starts a cluster in the folder it names, and one node,
// says the folder of the node, and does nothing more.
const starterEnv = "STILLWIRE_TEST_NODES_STARTER"

func startAndHang(dir string) error {
	return withNodes(context.Background(), dir, Options{Names: []string{"n1"}}, func() {
		fmt.Println(two.dir)
		select {}
	})
}

func TestNodesAreReadyAndTheirOwn(t *testing.T) {
	out := kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR} {.status.addresses[0].address} {.status.nodeInfo.kubeletVersion}{"\n"}{end}`)
	for _, want := range []string{" 10.200.0.11 v1.37.2\n", " 10.200.0.12 v1.37.2\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, n := range two.list {
		got, err := n.Exec(t.Context(), "sh", "-c", "hostname; cat /proc/1/comm; ls /sys/class/net | grep eth; cat /proc/self/cgroup | cut -d: -f3 | sort -u")
		if want := n.name + "\nsleep\neth0\n/\n"; err != nil || got != want {
			t.Errorf("got %q, want %q: %v", got, want, err)
		}
	}
	got, err := two.Node("n1").Exec(t.Context(), "sh", "-c", "echo no luck >&2; exit 3")
	if want := "on n1: sh -c echo no luck >&2; exit 3: exit status 3: no luck\n"; err == nil || err.Error() != want {
		t.Errorf("got %q and %v, want %s", got, err, want)
	}
}

// A test that is killed leaves no process, no mount and no namespace, and the next one removes the
// cgroups and files.
func TestNothingIsLeftOfATestThatWasKilled(t *testing.T) {
	starter := exec.CommandContext(t.Context(), os.Args[0])
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, enteredEnv+"=") {
			starter.Env = append(starter.Env, variable)
		}
	}
	starter.Env = append(starter.Env, starterEnv+"="+t.TempDir())
	starter.Stderr = os.Stderr
	stdout, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || len(runningIn(t, dir)) == 0 {
		t.Errorf("nothing runs in %q: %v", dir, err)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait() // was killed
	eventually(t, func() error {
		if left := runningIn(t, dir); len(left) != 0 {
			return fmt.Errorf("running: %q", left)
		}
		return nil
	})
	removeLeftovers(t.Context())
	for _, path := range append(cgroupsOf(t, dir), dir) {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(two.dir); err != nil {
		t.Errorf("what is still in use was removed: %v", err)
	}
}

// runningIn returns the command lines of the processes that are in the cgroup of the folder.
func runningIn(t *testing.T, dir string) (lines []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte("/"+filepath.Base(dir)+"/")) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // may have ended
			lines = append(lines, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return lines
}

// cgroupsOf are the paths of its cgroup in all hierarchies.
func cgroupsOf(t *testing.T, dir string) (paths []string) {
	t.Helper()
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		paths = append(paths, filepath.Join(cgroups, h, filepath.Base(dir)))
	}
	return paths
}
