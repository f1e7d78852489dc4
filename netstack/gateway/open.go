package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// openStream opens a TCP or unix listener. Others may use a unix socket only if shared.
func openStream(ctx context.Context, l Listen, shared bool) (net.Listener, error) {
	if l.Network == "unix" {
		return openSocket(ctx, l.Path, shared)
	}
	var c net.ListenConfig
	network, address := l.system()
	ln, err := c.Listen(ctx, network, address)
	if err != nil {
		return nil, whyNotOpen(err)
	}
	return ln, nil
}

// openPacket opens a UDP socket.
func openPacket(ctx context.Context, l Listen) (net.PacketConn, error) {
	var c net.ListenConfig
	network, address := l.system()
	pc, err := c.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, whyNotOpen(err)
	}
	return pc, nil
}

// system says the address in the words of package net, for which 0.0.0.0 would be both
// families and [::] would fail on a machine without IPv6.
func (l Listen) system() (network, address string) {
	switch addr := l.Addr.Addr(); {
	case addr.Is4():
		return l.Network + "4", l.Addr.String()
	case addr == netip.IPv6Unspecified():
		return l.Network, fmt.Sprintf(":%d", l.Addr.Port())
	}
	return l.Network, l.Addr.String()
}

// openSocket opens a unix listener in a mode that decides from the first moment who may
// connect. A socket that a dead process left behind is removed.
func openSocket(ctx context.Context, path string, shared bool) (net.Listener, error) {
	if err := clearStale(ctx, path); err != nil {
		return nil, err
	}
	mode := socketMode(shared)
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return setSocketMode(raw, mode) }}
	ln, err := c.Listen(ctx, "unix", path)
	if err != nil {
		return nil, whyNotOpen(err)
	}
	if err := os.Chmod(path, mode); err != nil { // the umask took bits from a shared one
		ln.Close()
		return nil, fmt.Errorf("set its mode: %w", err)
	}
	return ln, nil
}

// socketMode is 0600, so that this user alone may connect, or 0666.
func socketMode(shared bool) fs.FileMode {
	if shared {
		return 0o666
	}
	return 0o600
}

// clearStale removes a socket on which nobody listens.
func clearStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot be looked at: %w", err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errNoSocket
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return &saidError{"is the socket of a program that runs: stop it or choose another path", syscall.EADDRINUSE}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("is a socket that cannot be tried: %w", err)
	}
	return os.Remove(path)
}

var errNoSocket = errors.New("is a file that is no socket: remove it or choose another path")

// whyNotOpen says in words what the system says in numbers, and what to do.
func whyNotOpen(err error) error {
	for _, known := range []struct {
		is  error
		say string
	}{
		{syscall.EADDRINUSE, "is taken by another program: stop it or choose another port"},
		{syscall.EADDRNOTAVAIL, "is no address of this machine: choose one of its own"},
		{syscall.EACCES, "may not be opened by this user: choose a port from 1024 up, or a folder that it can write to"},
		{fs.ErrNotExist, "is in a folder that does not exist: make the folder or choose another path"},
		{syscall.EROFS, "is on a read-only file system: choose a folder that can be written to"},
		{syscall.EMFILE, "cannot be opened: this process has no file descriptors left: raise its limit"},
		{syscall.EAFNOSUPPORT, "is of an address family that this machine does not have: choose the other"},
	} {
		if errors.Is(err, known.is) {
			return &saidError{known.say, err}
		}
	}
	return fmt.Errorf("cannot be opened: %w", err)
}

// saidError is for people and keeps the cause for programs.
type saidError struct {
	say   string
	cause error
}

func (e *saidError) Error() string { return e.say }
func (e *saidError) Unwrap() error { return e.cause }
