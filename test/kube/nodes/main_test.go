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
	if os.Getenv(starterEnv) != "" {
		os.Exit(failed(startAndHang()))
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
	images := []Image{{Name: "stillwire:latest", Program: stillwire}}
	err = withNodes(context.Background(), []string{"n1", "n2"}, func() { status = r.tests.Run() }, images...)
	if err != nil {
		return failed(err)
	}
	return status
}

// withNodes starts a cluster with nodes, does what is asked, and stops it.
func withNodes(ctx context.Context, names []string, do func(), images ...Image) (err error) {
	shared, err = cluster.Start(ctx, cluster.Options{
		Address: Address(), Controllers: true, ControllerFlags: ControllerFlags(), Scheduler: true,
	})
	if err != nil {
		return err
	}
	two, err = Start(ctx, shared, Options{Names: names, Images: images})
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
