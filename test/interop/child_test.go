//go:build linux

package interop

import (
	"io"
	"net/rpc"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stillwire/stillwire/test/netns"
)

// child is a process that obeys net/rpc over the pipes of its standard input and output.
type child struct {
	t       *testing.T
	service string
	process *netns.Process
	client  *rpc.Client
	closing sync.Once
}

func startChild(t *testing.T, service string, cmd *exec.Cmd, start func(*exec.Cmd) *netns.Process) *child {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, service: service, process: start(cmd)}
	c.client = rpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{stdout, stdin})
	t.Cleanup(c.close)
	return c
}

// try returns the error of a call, call fails the test with it.
func (c *child) try(method string, args, reply any) error {
	return c.client.Call(c.service+"."+method, args, reply)
}

func (c *child) call(method string, args, reply any) {
	c.t.Helper()
	if err := c.try(method, args, reply); err != nil {
		c.t.Fatalf("%s.%s: %v\n%s", c.service, method, err, c.process.Output())
	}
}

// close ends the process in good order. The test fails when the process does, which a node
// does that leaks a goroutine or has a race.
func (c *child) close() {
	c.closing.Do(func() {
		c.client.Close()
		if err := c.process.Wait(20 * time.Second); err != nil {
			c.t.Errorf("%s ended with %v:\n%s", c.service, err, c.process.Output())
		}
	})
}

// kill ends the process without any order.
func (c *child) kill() {
	c.closing.Do(func() {
		c.process.Kill()
		c.client.Close()
	})
}
