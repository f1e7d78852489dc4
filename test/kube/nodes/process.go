//go:build linux

package nodes

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// process is a program that runs, or ran, as a child of the test.
type process struct {
	cmd   *exec.Cmd
	log   string        // path; "": none
	ended chan struct{} // closed when it is gone and reaped
	err   error         // of its end, set before ended is closed
}

// startOn starts a command from a thread that prepare was called on before. The thread is kept
// for as long as the child, as the kernel sends the signal of the parent's death when the thread
// ends that started the child. It ends then, with all that prepare did to it.
func startOn(cmd *exec.Cmd, prepare func() error) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	goThread(func() { p.run(prepare, started) })
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// dieWithParent has the kernel kill a command when this process dies.
func dieWithParent(flags uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
}

func (p *process) run(prepare func() error, started chan<- error) {
	defer close(p.ended)
	err := prepare()
	if err == nil {
		err = p.cmd.Start()
	}
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// kill ends the process and returns when it is gone. No process is success.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails when it is gone
	<-p.ended
}

// running returns an error that says how the process ended, if it has.
func (p *process) running() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %v; its log ends with:\n%s", p.cmd.Path, p.err, tail(p.log, 30))
	default:
		return nil
	}
}

// tail returns the last lines of a file.
func tail(path string, n int) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n-1):], nil)
}
