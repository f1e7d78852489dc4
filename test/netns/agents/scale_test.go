package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
)

// simulated is the manifest of a node that nobody runs.
func simulated(t *testing.T, i int) string {
	t.Helper()
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`---
apiVersion: stillwire.dev/v1alpha1
kind: MeshNode
metadata: {name: s%04d}
spec: {location: far%d, podCIDRs: [10.%d.%d.0/24]}
status:
  publicKey: %s
  meshAddresses: [10.4.%d.%d]
  endpoints: ['198.18.%d.%d:51820']
`, i, i, 100+i>>8, i&255, key.Public(), 128+i>>8, i&255, i>>8, i&255)
}

// simulate writes the manifests of count nodes.
func (w *world) simulate(count int) {
	var b strings.Builder
	for i := range count {
		b.WriteString(simulated(w.t, i))
	}
	w.put("simulated.yaml", b.String())
}

// lone is one machine whose agent runs.
func lone(t *testing.T) (w *world, ada *machine) {
	w = newWorld(t)
	ada = w.machine("ada", "berlin")
	w.startAll(ranges...)
	return w, ada
}

// What is in the firewall and what a change costs does not grow with the mesh: prefixes are
// elements of sets, and what one node changes is what is written.
func TestAMeshOfAThousandNodes(t *testing.T) {
	w, ada := lone(t)
	var before figures
	for _, size := range []int{250, 1000} {
		start := time.Now()
		w.simulate(size)
		w.await("ada has all routes", 60*time.Second, func() bool { return ada.has("route show table 7107", ada.podsOf(size-1)) })
		took := time.Since(start)
		now := ada.measure(size)
		t.Logf("%d nodes: set up in %v, %s", size, took.Round(time.Millisecond), now)
		if before.rules != 0 && now.rules != before.rules {
			t.Errorf("%d rules with 250 nodes, %d with %d", before.rules, now.rules, size)
		}
		if before.operations != 0 && now.operations != before.operations {
			t.Errorf("one more node is %d operations with 250 nodes, %d with %d", before.operations, now.operations, size)
		}
		before = now
	}
	if before.rules == 0 {
		t.Error("no rule was found")
	}
	if before.operations > 12 {
		t.Errorf("one more node is %d operations, want few", before.operations)
	}
}

// podsOf are the pods of a simulated node.
func (m *machine) podsOf(i int) string { return fmt.Sprintf("10.%d.%d.0/24", 100+i>>8, i&255) }

// figures are what a mesh costs.
type figures struct {
	rules, operations int
	change            time.Duration
	rss               int // KiB
}

func (f figures) String() string {
	return fmt.Sprintf("%d firewall rules, one more node is %d operations in %v, resident %d MiB", f.rules, f.operations, f.change.Round(time.Millisecond), f.rss>>10)
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// measure adds one node to those that are simulated, takes it away again, and counts.
func (m *machine) measure(size int) (f figures) {
	m.w.t.Helper()
	table, err := run(m.Namespace, "nft", "list", "table", "inet", "stillwire")
	if err != nil {
		m.w.t.Fatal(err)
	}
	f.rules = strings.Count(table, ` comment "`) // each of ours has one
	quiet := m.quiet()
	start := time.Now()
	m.w.put("more.yaml", simulated(m.w.t, size+1))
	m.w.await("there is a route to one more node", 20*time.Second, func() bool { return m.has("route show table 7107", m.podsOf(size+1)) })
	f.change = time.Since(start)
	f.operations = operations(m.quiet()[len(quiet):])
	if err := os.Remove(filepath.Join(m.w.dir, "more.yaml")); err != nil {
		m.w.t.Fatal(err)
	}
	m.w.await("it is gone again", 20*time.Second, func() bool { return !m.has("route show table 7107", m.podsOf(size+1)) })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.agent.PID()))
	if err != nil {
		m.w.t.Fatal(err)
	}
	f.rss, _ = strconv.Atoi(resident.FindStringSubmatch(string(status))[1])
	return f
}

// quiet waits until the agent has written nothing for a moment, and returns all that it wrote.
func (m *machine) quiet() string { return m.quietFor(500 * time.Millisecond) }

func (m *machine) quietFor(moment time.Duration) string {
	m.w.t.Helper()
	last, since := m.agent.Output(), time.Now()
	m.w.await("the agent has no more to say", 60*time.Second, func() bool {
		if now := m.agent.Output(); len(now) != len(last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > moment
	})
	return last
}

// operations counts what log lines say was done.
func operations(log string) (n int) {
	for line := range strings.Lines(log) {
		var l struct {
			Message                 string
			Added, Changed, Removed []string
		}
		if json.Unmarshal([]byte(line), &l) != nil {
			continue
		}
		switch l.Message {
		case "device changed":
			n++
		case "host changed":
			n += len(l.Added) + len(l.Changed) + len(l.Removed)
		}
	}
	return n
}

// stopTraced ends an agent that runs below strace, which ends with it.
func (m *machine) stopTraced() {
	m.w.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.agent.PID()))
	if err != nil {
		m.w.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGTERM)
	}
	if err == nil {
		err = m.agent.Wait(10 * time.Second)
	}
	if err != nil {
		m.w.t.Fatalf("end the agent below strace: %v", err)
	}
}

// In all its life, with a hundred nodes that come and go, an agent starts no process.
func TestAnAgentStartsNoProcess(t *testing.T) {
	w := newWorld(t)
	ada := w.machine("ada", "berlin")
	ada.write()
	calls := filepath.Join(t.TempDir(), "calls")
	ada.agent = ada.Start(exec.Command("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=execve,execveat,fork,vfork", "-o", calls,
		program, "agent", "--dir", w.dir, "--node", "ada", "--state-dir", ada.state, "--resync-period", "100ms"))
	w.await("ada guards the mesh", 30*time.Second, ada.guarded)
	for range 2 {
		w.simulate(100)
		w.await("a hundred nodes have come", 30*time.Second, func() bool { return ada.has("route show table 7107", ada.podsOf(99)) })
		w.put("simulated.yaml", "")
		w.await("a hundred nodes have gone", 30*time.Second, func() bool { return !ada.has("route show table 7107", ada.podsOf(0)) })
	}
	if _, err := run(ada.Namespace, "nft", "delete", "table", "inet", "stillwire"); err != nil {
		t.Fatal(err)
	}
	w.await("ada guards the mesh again", 30*time.Second, ada.guarded)
	ada.stopTraced()
	seen, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(seen, []byte("exec")) + bytes.Count(seen, []byte("fork(")); lines != 1 {
		t.Errorf("%d processes were started, want none but the agent itself:\n%s", lines-1, seen)
	}
}
