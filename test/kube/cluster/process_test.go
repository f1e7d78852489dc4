//go:build linux

package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStopLeavesNoProcessAndNoFile(t *testing.T) {
	c, err := Start(t.Context(), Options{Address: netip.MustParseAddr("127.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	if got := runningIn(t, c.dir); len(got) != 2 {
		t.Errorf("etcd and kube-apiserver run as %q", got)
	}
	if want := "https://127.0.0.2:"; !strings.HasPrefix(c.URL(), want) {
		t.Errorf("the API server is at %s, not %s", c.URL(), want)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if left := runningIn(t, c.dir); len(left) != 0 {
		t.Errorf("left running: %q", left)
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", c.dir, err)
	}
}

func TestComponentsEndWithTheProgramThatStartedThem(t *testing.T) {
	dir := t.TempDir()
	starter := exec.CommandContext(t.Context(), os.Args[0])
	starter.Env = append(os.Environ(), starterEnv+"="+dir)
	starter.Stderr = os.Stderr
	stdout, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Errorf("it says %q: %v", line, err)
	}
	if got := runningIn(t, dir); len(got) != 2 {
		t.Errorf("etcd and kube-apiserver run as %q", got)
	}
	if err := starter.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = starter.Wait() // was killed
	await(t, 10*time.Second, func() error {
		if left := runningIn(t, dir); len(left) != 0 {
			return fmt.Errorf("running: %q", left)
		}
		return nil
	})
}

func TestStartSaysWhatTheComponentComplainedOf(t *testing.T) {
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Dir: dir, APIFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v", err)
	}
	if left := runningIn(t, dir); len(left) != 0 {
		t.Errorf("left running: %q", left)
	}
}

func TestStopNamesAComponentThatEndedByItself(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := startProcess("etcd", t.TempDir(), log, []string{"sh", "-c", "echo out of luck; exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	const want = "etcd: ended by itself: exit status 3; its log ends with:\nout of luck\n"
	if err := p.stop(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestStopEndsAPausedProcess(t *testing.T) {
	p, err := startProcess("etcd", t.TempDir(), filepath.Join(t.TempDir(), "log"), []string{"sleep", "600"})
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{apiserver: p}
	if err := c.PauseAPI(); err != nil {
		t.Fatal(err)
	}
	if err := c.StopAPI(); err != nil {
		t.Error(err)
	}
}

// runningIn returns the command lines of the processes that have the folder in a flag.
func runningIn(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			continue // has ended since
		}
		line, _ := io.ReadAll(file)
		file.Close()
		if bytes.Contains(line, []byte(dir+"/")) {
			lines = append(lines, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return lines
}
