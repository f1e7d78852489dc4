//go:build linux

package nodes

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The main thread never ends: one that entered a node would keep its cgroup and namespaces.
func TestNoGoroutineTakesTheMainThreadIntoANode(t *testing.T) {
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			err := onThread(func() error { return nil }, func() error {
				if unix.Gettid() == unix.Getpid() {
					t.Error("on the main thread")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
