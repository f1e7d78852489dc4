package gateway

import (
	"io/fs"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// setSocketMode gives a unix socket its mode before bind makes the file, so that there is
// no moment at which others could connect.
func setSocketMode(raw syscall.RawConn, mode fs.FileMode) (err error) {
	control := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), uint32(mode)) })
	if control != nil {
		return control
	}
	return err
}

// mayMark reports whether this process may set the mark of packets (SO_MARK), by trying.
func mayMark() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1) == nil
}

// mayWrite reports why this process may make no files in a folder, or nil.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// peerUser returns the user at the other end of a unix connection.
func peerUser(conn *net.UnixConn) (uid int, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	control := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if control != nil || err != nil {
		return 0, false
	}
	return int(cred.Uid), true
}
