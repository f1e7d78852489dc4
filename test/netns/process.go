//go:build linux

package netns

import (
	"bytes"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs in a namespace. It ends with the test at the latest.
type Process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{}
	err  error // of its end, set before done is closed
}

// output keeps what a process wrote.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// Start starts a command in the namespace, and fails the test when it cannot. Its standard
// error is kept, and so is its standard output unless cmd.Stdout is set.
func (n *Namespace) Start(cmd *exec.Cmd) *Process {
	n.t.Helper()
	return start(n.t, cmd, n.Do)
}

// Start is Namespace.Start in the namespace of the test itself.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return start(t, cmd, func(f func() error) error { return f() })
}

func start(t testing.TB, cmd *exec.Cmd, in func(func() error) error) *Process {
	t.Helper()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &p.out
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := in(cmd.Start); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	var reaper sync.WaitGroup
	reaper.Go(func() {
		p.err = cmd.Wait()
		close(p.done)
	})
	t.Cleanup(func() {
		p.Stop()
		reaper.Wait()
	})
	return p
}

// Output returns what the process has written so far.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.b.String()
}

// Kill ends the process as the kernel does when memory is short, and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// stopTime is what a process gets to end in good order.
const stopTime = 10 * time.Second

// Stop asks the process to end (SIGTERM), kills it after 10 s, and waits for its end. It may
// be called twice. The error is that of a process that ended badly or had to be killed.
func (p *Process) Stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	return p.Wait(stopTime)
}

// Wait waits for the end of the process, which is killed when that takes too long.
func (p *Process) Wait(atMost time.Duration) error {
	patience := time.NewTimer(atMost)
	defer patience.Stop()
	select {
	case <-p.done:
	case <-patience.C:
		p.Kill()
	}
	return p.err
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }
