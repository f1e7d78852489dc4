//go:build !linux

package device

import "golang.zx2c4.com/wireguard/conn"

// newPlainBind returns a Bind that moves one datagram per system call: all there is here.
func newPlainBind() conn.Bind { return NewBind(BindOptions{}) }
