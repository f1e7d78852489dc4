package rootless

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

// build makes the program as it is shipped: one static file.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(sharedDir(t), "stillwire")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "../../cmd/stillwire")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Errorf("%s needs a dynamic linker, and an empty image has none", program)
		}
	}
	return program
}

// sharedDir is a folder that the sandbox's user can walk into, as it cannot into t.TempDir.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// secretFile writes a file that the sandbox's user alone can read.
func secretFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// running is the program inside the sandbox.
type running struct {
	cmd   *exec.Cmd
	admin string // HOST:PORT
	log   *lockedBuffer
	ended chan struct{} // closed when it has ended
	err   error         // how, once it has
}

// start runs a gateway and waits until it says that it is ready.
func start(t *testing.T, program string, args ...string) *running {
	t.Helper()
	r := &running{admin: freePort(t), log: new(lockedBuffer), ended: make(chan struct{})}
	args = append([]string{"gateway", "--admin", r.admin, "--log-format", "json"}, args...)
	ctx, cancel := context.WithCancel(context.Background())
	r.cmd = inSandbox(ctx, program, args...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if t.Failed() {
			t.Logf("the gateway said:\n%s", r.log)
		}
	})
	r.waitFor(t, "/readyz", "ok")
	return r
}

// waitFor asks again and again until the answer is well and holds the text.
func (r *running) waitFor(t *testing.T, path, text string) {
	t.Helper()
	r.await(t, path, text, func() ([]byte, error) { return r.get(path) })
}

// waitForLog waits until the log holds the text.
func (r *running) waitForLog(t *testing.T, text string) {
	t.Helper()
	r.await(t, "the log", text, func() ([]byte, error) { return []byte(r.log.String()), nil })
}

func (r *running) await(t *testing.T, what, text string, get func() ([]byte, error)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		got, err := get()
		if err == nil && bytes.Contains(got, []byte(text)) {
			return
		}
		select {
		case <-tick.C:
		case <-r.ended:
			t.Fatalf("the gateway ended: %v", r.err)
		case <-late:
			t.Fatalf("%s holds no %q after %s: %s, error %v", what, text, patience, got, err)
		}
	}
}

// get asks the admin listener and wants 200.
func (r *running) get(path string) ([]byte, error) {
	resp, err := http.Get("http://" + r.admin + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, resp.Status, body)
	}
	return body, err
}

// service returns where the service of that kind listens.
func (r *running) service(t *testing.T, kind string) string {
	t.Helper()
	body, err := r.get("/status")
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Services []struct{ Kind, Listen string }
	}
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, s := range status.Services {
		if s.Kind == kind {
			return s.Listen
		}
	}
	t.Fatalf("no %s in %s", kind, body)
	return ""
}

// stop sends SIGTERM and wants a clean end.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.ended:
		if r.err != nil {
			t.Errorf("the gateway ended with %v", r.err)
		}
	case <-time.After(patience):
		t.Errorf("the gateway did not end %s after SIGTERM", patience)
	}
}

// proc reads a file of the process.
func (r *running) proc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", r.cmd.Process.Pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// freePort returns a loopback address that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// children lists the processes whose parent is pid.
func children(t *testing.T, pid int) (found []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if fields := statFields(string(b)); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, string(b))
		}
	}
	return found
}

// statFields returns what stands behind the name in /proc/PID/stat, from the state on.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// lockedBuffer takes what the program writes while the test may read it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
