//go:build linux

package host

import "context"

// Run waits.
func (h *Host) Run(ctx context.Context, again func()) error {
	<-ctx.Done()
	return nil
}
