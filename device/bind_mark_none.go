//go:build !linux && !freebsd && !openbsd

package device

import "net"

// markSocket does nothing: the system has no marks.
func markSocket(*net.UDPConn, uint32) error { return nil }
