package proxy

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
)

// Reason says why a flow was refused or cut, or a datagram dropped. The set is closed: it is
// used unchanged as log value, metric label and text.
type Reason string

// The reasons.
const (
	// Of a target that cannot be reached.
	ReasonRefused            Reason = "refused"             // the target refused the connection (RST), or nobody listens on the UDP port
	ReasonNetworkUnreachable Reason = "network_unreachable" // no route, no peer, or no address of that family
	ReasonHostUnreachable    Reason = "host_unreachable"    // the network says that the host is not there
	ReasonTimeout            Reason = "timeout"             // no answer in time
	ReasonName               Reason = "name"                // the name does not resolve, or is none
	ReasonPolicy             Reason = "policy"              // forbidden by the dialer's policy (ErrPolicy) or the system's
	ReasonCanceled           Reason = "canceled"            // the client left, or the server ended, while the target was dialled
	ReasonTarget             Reason = "target"              // the target failed in another way
	ReasonLoop               Reason = "loop"                // an HTTP request that has passed this proxy before

	// Of a client that is not served.
	ReasonAuth        Reason = "auth"         // no or wrong credential
	ReasonLimit       Reason = "limit"        // Options.MaxConns or MaxMappings is reached
	ReasonClientLimit Reason = "client_limit" // Options.MaxPerClient is reached
	ReasonHandshake   Reason = "handshake"    // the client did not finish its request in time
	ReasonProtocol    Reason = "protocol"     // what the client sent is not the protocol
	ReasonSOCKS4      Reason = "socks4"       // the client speaks SOCKS4
	ReasonCommand     Reason = "command"      // a SOCKS5 command, or UDP, that is not served
	ReasonAddressType Reason = "address_type" // a SOCKS5 address type that RFC 1928 does not have

	// Of a flow that was cut.
	ReasonIdle     Reason = "idle"     // nothing moved for Options.IdleTimeout
	ReasonReset    Reason = "reset"    // one side reset the connection, or it broke
	ReasonShutdown Reason = "shutdown" // the server ended before the flow did

	// Of a datagram that was dropped.
	ReasonFragment   Reason = "fragment"   // a SOCKS5 fragment
	ReasonForeign    Reason = "foreign"    // not from the client of the association
	ReasonTooLarge   Reason = "too_large"  // does not fit into a datagram, with its SOCKS5 header
	ReasonQueueFull  Reason = "queue_full" // more are waiting for the target than may
	ReasonUnsendable Reason = "unsendable" // the socket would not send it
)

// reasons lists them all, in the order above. The place in it is the counter's.
var reasons = []Reason{
	ReasonRefused, ReasonNetworkUnreachable, ReasonHostUnreachable, ReasonTimeout, ReasonName,
	ReasonPolicy, ReasonCanceled, ReasonTarget, ReasonLoop,
	ReasonAuth, ReasonLimit, ReasonClientLimit, ReasonHandshake, ReasonProtocol, ReasonSOCKS4,
	ReasonCommand, ReasonAddressType,
	ReasonIdle, ReasonReset, ReasonShutdown,
	ReasonFragment, ReasonForeign, ReasonTooLarge, ReasonQueueFull, ReasonUnsendable,
}

// Reasons returns all reasons there are.
func Reasons() []Reason { return slices.Clone(reasons) }

// ErrPolicy is to be wrapped by a Dialer or a net.PacketConn that forbids a target: the
// client is then told so.
var ErrPolicy = errors.New("forbidden by policy")

// DialReason tells why a dial failed, from its error. It knows the system's error numbers,
// resolver errors, contexts and time-outs, and the words of gVisor's own errors where those
// are passed on as text.
func DialReason(err error) Reason {
	var dns *net.DNSError
	switch {
	case errors.Is(err, ErrPolicy), isErrno(err, syscall.EPERM, syscall.EACCES):
		return ReasonPolicy
	case isErrno(err, syscall.ECONNREFUSED), text(err) == "connection was refused":
		return ReasonRefused
	case isErrno(err, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT), text(err) == "network is unreachable":
		return ReasonNetworkUnreachable
	case isErrno(err, syscall.EHOSTUNREACH, syscall.EHOSTDOWN), text(err) == "no route to host", text(err) == "host is down":
		return ReasonHostUnreachable
	case isTimeout(err), text(err) == "operation timed out":
		return ReasonTimeout
	case errors.As(err, &dns):
		return ReasonName
	case errors.Is(err, context.Canceled), errors.Is(err, errGone), errors.Is(err, ErrServerClosed):
		return ReasonCanceled
	}
	return ReasonTarget
}

func isErrno(err error, numbers ...syscall.Errno) bool {
	return slices.ContainsFunc(numbers, func(n syscall.Errno) bool { return errors.Is(err, n) })
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) && e.Timeout()
}

// text is what the innermost part of a net.OpError says.
func text(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	return ""
}
