package device

import (
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// newPlainBind returns a Bind that moves one datagram per system call, as in a sandbox.
func newPlainBind() conn.Bind {
	b := NewBind(BindOptions{})
	b.kernel.recvmmsg = func(uintptr, []unix.Mmsghdr) (int, unix.Errno) { return 0, unix.ENOSYS }
	return b
}
