//go:build linux || freebsd || openbsd

package device

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// markSocket sets what each system calls a mark.
func markSocket(c *net.UDPConn, mark uint32) error {
	option := 36 // SO_MARK of Linux
	switch runtime.GOOS {
	case "freebsd":
		option = 0x1015 // SO_USER_COOKIE
	case "openbsd":
		option = 0x1021 // SO_RTABLE
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, int(mark))
	})
	if errors.Is(set, unix.EPERM) {
		set = fmt.Errorf("%w: it needs CAP_NET_ADMIN", set)
	}
	return errors.Join(err, set)
}
