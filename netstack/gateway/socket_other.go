//go:build !linux

package gateway

import (
	"io/fs"
	"net"
	"os"
	"syscall"
)

// setSocketMode does nothing here: the mode is set once the file is there.
func setSocketMode(syscall.RawConn, fs.FileMode) error { return nil }

// peerUser has no portable form; the mode of the socket, 0600, keeps other users away.
func peerUser(*net.UnixConn) (uid int, ok bool) { return os.Getuid(), true }

// mayMark leaves it to the system.
func mayMark() bool { return true }

// mayWrite leaves it to whoever writes.
func mayWrite(string) error { return nil }
