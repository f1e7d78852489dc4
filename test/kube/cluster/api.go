//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// StartAPI starts the API server on its port and data, as Start does, and returns when it is
// ready. One that runs is left alone. Controllers come back by themselves, up to a minute
// later after several outages: each waits longer before it asks again.
func (c *Cluster) StartAPI(ctx context.Context) (err error) {
	if c.apiserver == nil {
		if c.apiserver, err = c.run("kube-apiserver", apiFlags(c)); err != nil {
			return err
		}
	}
	// The API server is ready some time before it has made its first namespaces.
	return c.await(ctx, c.apiserver, "/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system")
}

// StopAPI ends the API server in good order, so that clients see their connections closed
// and new ones refused. One that is stopped is left alone.
func (c *Cluster) StopAPI() error {
	err := c.apiserver.stop()
	c.apiserver = nil
	return err
}

// PauseAPI has the API server fall silent: connections stay, new ones are taken by the
// kernel, and no request is answered.
func (c *Cluster) PauseAPI() error { return c.signalAPI(syscall.SIGSTOP) }

// ResumeAPI ends what PauseAPI began, and returns when the API server is ready.
func (c *Cluster) ResumeAPI(ctx context.Context) error {
	if err := c.signalAPI(syscall.SIGCONT); err != nil {
		return err
	}
	return c.await(ctx, c.apiserver, "/readyz")
}

func (c *Cluster) signalAPI(signal syscall.Signal) error {
	if c.apiserver == nil {
		return errors.New("the API server is stopped")
	}
	if err := c.apiserver.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("send %v to kube-apiserver: %w", signal, err)
	}
	return nil
}

// await returns once the API server has answered each of the paths with success, or with an
// error when the process has ended, which is the one that makes it do so, or etcd has.
func (c *Cluster) await(ctx context.Context, p *process, paths ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready after %v", patience))
	defer cancel()
	client, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := c.get(ctx, client, paths)
		if missing == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return p.failure("ended")
		case <-c.etcd.ended:
			return c.etcd.failure("ended")
		case <-ctx.Done():
			return p.failure(fmt.Sprintf("%v: %v", context.Cause(ctx), missing))
		}
	}
}

// get asks for each of the paths and returns what is wrong with the first that is not there.
func (c *Cluster) get(ctx context.Context, client *http.Client, paths []string) error {
	// A connection may have been made to a server that is no more, or is paused.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, path := range paths {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+path, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		body, _ := io.ReadAll(response.Body) // only for the error
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", path, response.Status, body)
		}
	}
	return nil
}
