//go:build linux

package api

import (
	"context"
	"testing"
	"time"
)

// await looks every few milliseconds until the condition holds, and fails the test with what it last
// said when it does not within the time.
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
