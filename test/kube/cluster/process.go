//go:build linux

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// grace is how long a component has between being told to end and being killed.
const grace = 20 * time.Second

// process is a component that runs, or ran.
type process struct {
	name  string
	log   string // path
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone and reaped
	err   error         // why it ended, once ended is closed
}

// startProcess runs the command in the folder with an environment that holds nothing of the
// test's, such as proxies. Its output is put behind what the log holds.
func startProcess(name, dir, log string, command []string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	p := &process{name: name, log: log, cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run starts the command and waits until it ends. The kernel sends the signal of the
// parent's death when the thread ends that started the child, and a test that enters a
// network namespace ends threads: this one is kept for as long as the child.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// stop tells the process to end, kills it when it does not, and returns when it is gone. No
// process is success.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return p.failure("ended by itself")
	default:
	}
	// Both fail only when the process ends just now. One that is paused takes the first
	// signal with the second.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return p.failure(fmt.Sprintf("did not end within %v", grace))
}

// failure says what went wrong, and what the process wrote last.
func (p *process) failure(what string) error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s: %s: %v; its log ends with:\n%s", p.name, what, p.err, p.lastLines(30))
	default:
		return fmt.Errorf("%s: %s; its log ends with:\n%s", p.name, what, p.lastLines(30))
	}
}

func (p *process) lastLines(n int) []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n-1):], nil)
}
