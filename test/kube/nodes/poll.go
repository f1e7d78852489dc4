//go:build linux

package nodes

import (
	"context"
	"fmt"
	"time"
)

// patience is how long a step of a start or stop may take. On an idle machine of two cores none
// takes a tenth of it.
const patience = 90 * time.Second

// poll tries until there is no error, and returns the last one when the context ends or patience
// does.
func poll(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("after %v still", patience))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
