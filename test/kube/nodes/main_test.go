//go:build linux

package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/stillwire/stillwire/test/kube/cluster"
)

// All tests have one cluster of two nodes.
var (
	shared *cluster.Cluster
	two    *Nodes
)

// stillwire is the built program.
var stillwire string

func TestMain(m *testing.M) {
	Enter()
	if dir := os.Getenv(starterEnv); dir != "" {
		os.Exit(failed(startAndHang(dir)))
	}
	goleak.VerifyTestMain(run{m})
}

// run is the tests with the cluster around them, so that none of its goroutines is left when
// goroutines are counted.
type run struct{ tests *testing.M }

func (r run) Run() int {
	dir, err := os.MkdirTemp("", "stillwire-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	stillwire = filepath.Join(dir, "stillwire")
	status := 1
	if err := Build(context.Background(), ".", "./cmd/stillwire", stillwire); err != nil {
		return failed(err)
	}
	options := Options{Names: []string{"n1", "n2"}, Images: []Image{{Name: "stillwire:latest", Program: stillwire}}}
	err = withNodes(context.Background(), "", options, func() { status = r.tests.Run() })
	if err != nil {
		return failed(err)
	}
	return status
}

// withNodes starts a cluster with nodes, does what is asked, and stops it. The folder is the
// cluster's: see cluster.Options.
func withNodes(ctx context.Context, dir string, options Options, do func()) (err error) {
	shared, err = cluster.Start(ctx, cluster.Options{
		Dir: dir, Address: Address(), Controllers: true, ControllerFlags: ControllerFlags(), Scheduler: true,
	})
	if err != nil {
		return err
	}
	two, err = Start(ctx, shared, options)
	if err == nil {
		do()
		err = two.Stop()
	}
	if stopped := shared.Stop(); err == nil {
		err = stopped
	}
	return err
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
