//go:build linux

// Package cluster runs a real Kubernetes control plane for tests: etcd and kube-apiserver,
// and on wish kube-controller-manager and kube-scheduler, as child processes of the test, with
// certificates, ports and data of their own. Many can run at once, on one machine and in one
// test.
//
//	test --- Admin, NodeToken, Kubectl ---> kube-apiserver ---> etcd
//	                                           ^      ^
//	  kube-controller-manager (Options.Controllers)  kube-scheduler (Options.Scheduler)
//
// There is no kubelet: a Node is an object, and a Pod on it never runs. What the API server
// decides is real all the same: tokens, RBAC, admission, watches, validation. Package nodes
// gives a cluster nodes that run pods.
//
// It ends only the processes that it started, and these end when the test does, however
// that ends. A Cluster may be used from many goroutines, but for the methods that stop and
// start something, which one at a time calls.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// patience is how long a component may take until it is ready. It takes 5 s on an idle
// machine of two cores.
const patience = 2 * time.Minute

// Options say what Start starts. The zero value is etcd and kube-apiserver on loopback.
type Options struct {
	// Address is where kube-apiserver listens, beside etcd on loopback. Invalid means
	// 127.0.0.1. The Service "kubernetes" has an endpoint only when it is not loopback.
	Address netip.Addr

	// Controllers runs kube-controller-manager too: with it owner references are followed,
	// and each namespace has its ServiceAccount "default".
	Controllers bool

	// Scheduler runs kube-scheduler too, which gives pods their nodes.
	Scheduler bool

	// APIFlags are put behind the flags of kube-apiserver.
	APIFlags []string

	// ControllerFlags are put behind the flags of kube-controller-manager.
	ControllerFlags []string

	// Dir holds certificates, data and logs, and is left as it is by Stop. Empty means a
	// temporary folder, which Stop removes.
	Dir string

	// Box is the program that test/kube/box/build.sh makes. Empty means that it is built,
	// or taken from where an earlier build kept it.
	Box string
}

// Cluster is a running control plane.
type Cluster struct {
	options   Options
	dir       string
	box       string
	api       netip.AddrPort // kube-apiserver
	client    netip.AddrPort // etcd
	peer      netip.AddrPort // etcd, which insists on one
	authority *authority
	admin     *rest.Config

	etcd        *process
	apiserver   *process // nil while it is stopped
	controllers *process // nil without Options.Controllers
	scheduler   *process // nil without Options.Scheduler
}

// Start returns once the API server is ready and has its first namespaces, and the controllers
// have made what they make in each; the scheduler may take a moment longer. The context bounds the start alone. An error says what the component that
// failed wrote last, and then nothing is left running.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c := &Cluster{options: options}
	if err := c.start(ctx); err != nil {
		_ = c.Stop() // would say again what ended
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		c.makeDir, c.findBox, c.choosePorts, c.writeIdentities, c.startEtcd, c.StartAPI, c.startControllers, c.startScheduler,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends every component and removes what Start made. An error names the components that
// had ended before, or would not end when told to.
func (c *Cluster) Stop() error {
	err := errors.Join(
		c.scheduler.stop(),
		c.controllers.stop(),
		c.StopAPI(),
		c.etcd.stop(),
	)
	c.scheduler, c.controllers, c.etcd = nil, nil, nil
	if c.options.Dir == "" && c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// Box is the program that holds the components, the kubelet among them.
func (c *Cluster) Box() string { return c.box }

// Log returns the path of a component's log: "etcd", "kube-apiserver",
// "kube-controller-manager" or "kube-scheduler".
func (c *Cluster) Log(component string) string { return filepath.Join(c.dir, component+".log") }

func (c *Cluster) makeDir(context.Context) (err error) {
	if c.dir = c.options.Dir; c.dir == "" {
		c.dir, err = os.MkdirTemp("", "cluster-")
		return err
	}
	// Components run in this folder, so their flags cannot name it from elsewhere.
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	return os.MkdirAll(c.dir, 0o700)
}

func (c *Cluster) findBox(ctx context.Context) error {
	if c.box = c.options.Box; c.box != "" {
		return nil
	}
	c.box = filepath.Join(c.dir, "box")
	return buildBox(ctx, c.box)
}

func (c *Cluster) choosePorts(context.Context) (err error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	address := c.options.Address
	if !address.IsValid() {
		address = loopback
	}
	if c.api, err = freePort(address); err != nil {
		return err
	}
	if c.client, err = freePort(loopback); err != nil {
		return err
	}
	c.peer, err = freePort(loopback)
	return err
}

// API is where the API server listens.
func (c *Cluster) API() netip.AddrPort { return c.api }

// URL is where the API server answers, such as https://127.0.0.1:20443.
func (c *Cluster) URL() string {
	return "https://" + net.JoinHostPort(c.api.Addr().String(), strconv.Itoa(int(c.api.Port())))
}
