//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// starterEnv makes this program one that starts a cluster in the folder it names, and then
// does nothing more.
const starterEnv = "STILLWIRE_CLUSTER_STARTER"

// shared is the cluster of all tests that leave it as it was.
var shared *Cluster

func TestMain(m *testing.M) {
	if dir := os.Getenv(starterEnv); dir != "" {
		os.Exit(startAndHang(dir))
	}
	goleak.VerifyTestMain(run{m})
}

// run is the tests with the shared cluster around them, so that none of its goroutines is
// left when goroutines are counted.
type run struct{ tests *testing.M }

func (r run) Run() int {
	var err error
	if shared, err = Start(context.Background(), Options{Controllers: true}); err != nil {
		return failed(err)
	}
	status := r.tests.Run()
	if err := shared.Stop(); err != nil {
		return failed(err)
	}
	return status
}

// startAndHang says on standard output when the cluster is ready, and waits to be killed.
func startAndHang(dir string) int {
	if _, err := Start(context.Background(), Options{Dir: dir}); err != nil {
		return failed(err)
	}
	fmt.Println("ready")
	select {}
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// await looks every few milliseconds until the condition holds, and fails the test with what
// it last said when it does not within the time.
func await(t *testing.T, atMost time.Duration, condition func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v still: %v", atMost, err)
		}
	}
}
