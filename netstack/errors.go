package netstack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// errno is the operating system's name for what gVisor reports, so that callers can ask
// errors.Is(err, syscall.ECONNREFUSED) as with any other socket.
func errno(err tcpip.Error) error {
	switch err.(type) {
	case nil:
		return nil
	case *tcpip.ErrConnectionRefused:
		return syscall.ECONNREFUSED
	case *tcpip.ErrConnectionReset:
		return syscall.ECONNRESET
	case *tcpip.ErrConnectionAborted, *tcpip.ErrAborted:
		return syscall.ECONNABORTED
	case *tcpip.ErrTimeout:
		return syscall.ETIMEDOUT
	case *tcpip.ErrNetworkUnreachable, *tcpip.ErrNoNet:
		return syscall.ENETUNREACH
	case *tcpip.ErrHostUnreachable, *tcpip.ErrHostDown:
		return syscall.EHOSTUNREACH
	case *tcpip.ErrPortInUse, *tcpip.ErrNoPortAvailable:
		return syscall.EADDRINUSE
	case *tcpip.ErrBadLocalAddress, *tcpip.ErrBadAddress:
		return syscall.EADDRNOTAVAIL
	case *tcpip.ErrMessageTooLong:
		return syscall.EMSGSIZE
	case *tcpip.ErrClosedForSend:
		return syscall.EPIPE
	case *tcpip.ErrNotConnected:
		return syscall.ENOTCONN
	case *tcpip.ErrDestinationRequired:
		return syscall.EDESTADDRREQ
	case *tcpip.ErrNoBufferSpace:
		return syscall.ENOBUFS
	case *tcpip.ErrBroadcastDisabled, *tcpip.ErrNotPermitted:
		return syscall.EACCES
	case *tcpip.ErrInvalidEndpointState, *tcpip.ErrInvalidOptionValue:
		return syscall.EINVAL
	case *tcpip.ErrAddressFamilyNotSupported, *tcpip.ErrUnknownProtocol:
		return syscall.EAFNOSUPPORT
	}
	return errors.New(err.String())
}

// opError is how the net package reports: what was tried, between which ends, and why not.
func opError(op, network string, local, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Source: local, Addr: remote, Err: err}
}

// timeoutError is a wait that ended with its context, with the reason in words. Both
// errors.Is(err, context.DeadlineExceeded) and net.Error's Timeout hold.
type timeoutError struct {
	reason string
	cause  error
}

func (e *timeoutError) Error() string   { return e.reason }
func (e *timeoutError) Unwrap() error   { return e.cause }
func (e *timeoutError) Timeout() bool   { return errors.Is(e.cause, context.DeadlineExceeded) }
func (e *timeoutError) Temporary() bool { return e.Timeout() }

// contextError is ctx's error in words, with reason for a deadline.
func contextError(ctx context.Context, reason string) error {
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return &timeoutError{reason, err}
	} else {
		return err
	}
}

// errDeadline is what reads and writes end with at their deadline.
var errDeadline = os.ErrDeadlineExceeded

func tcpAddr(a netip.AddrPort) net.Addr {
	if !a.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

func udpAddr(a netip.AddrPort) net.Addr {
	if !a.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(a)
}

func addrPort(a tcpip.FullAddress) netip.AddrPort {
	return netip.AddrPortFrom(netipAddr(a.Addr), a.Port)
}
