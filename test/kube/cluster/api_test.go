//go:build linux

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// start gives the test a cluster of its own: controllers are slow to come back after an
// outage, which other tests would have to wait for.
func start(t *testing.T) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestDataOutliveAnOutage(t *testing.T) {
	c := start(t)
	c.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: outage-a}")
	watch, err := client(t, c.Admin()).CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StopAPI(); err != nil {
		t.Fatal(err)
	}
	for range watch.ResultChan() { // until the server has ended it
	}
	if _, stderr, err := c.Kubectl(t, "get", "node", "outage-a"); err == nil || !strings.Contains(stderr, "refused") {
		t.Errorf("kubectl reaches a stopped API server: %v: %s", err, stderr)
	}
	if err := c.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Kubectl(t, "get", "node", "outage-a"); err != nil {
		t.Error(err)
	}
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	c := start(t)
	nodes := client(t, c.Admin()).CoreV1().Nodes()
	if err := c.PauseAPI(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := nodes.List(ctx, metav1.ListOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused API server answers: %v", err)
	}
	if err := c.ResumeAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
