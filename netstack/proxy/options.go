package proxy

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rs/zerolog"
)

// Dialer reaches targets. *net.Dialer and *netstack.Net are Dialers. The network is "tcp",
// "udp" or "unix"; the address is HOST:PORT with the host as the client wrote it, a name
// included, or a path.
//
// A dialer that forbids the target returns an error that wraps ErrPolicy. See DialReason for
// what else its errors may say to the client.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// PacketListener opens unconnected UDP sockets. *net.ListenConfig is one. The network is
// "udp", "udp4" or "udp6".
type PacketListener interface {
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
}

// Options say how flows are carried. All but Dialer have a zero value that works.
type Options struct {
	// Dialer reaches the targets. Required.
	Dialer Dialer
	// Packets opens the sockets through which SOCKS5 UDP ASSOCIATE reaches its targets: one
	// per address family and association, so that a target and everyone else sees the client
	// at one address (endpoint-independent mapping and filtering, RFC 4787). Names are
	// resolved by the Dialer. nil: UDP ASSOCIATE is refused.
	Packets PacketListener
	// ClientPackets opens the sockets on which SOCKS5 associations hear their clients, on
	// the address on which the client's TCP connection came in. nil: the system's.
	ClientPackets PacketListener

	// Users may use a proxy; the zero value is everyone who can reach the listener. A forward
	// asks nobody.
	Users Users

	// MaxConns is how many client connections there may be at one time. 0: 4096; negative:
	// no limit. One too many is told so where the protocol has words for it, and reset
	// otherwise.
	MaxConns int
	// MaxPerClient is how many of these may come from one IP address. 0: no limit.
	MaxPerClient int
	// MaxMappings is how many clients a UDPForward serves at one time. 0: 1024. One more
	// takes the place of the client that was silent for longest, and of one that never got
	// an answer first.
	MaxMappings int
	// MaxHeaderBytes bounds the head of an HTTP request. 0: 64 KiB.
	MaxHeaderBytes int

	// HandshakeTimeout is how long a client has to say what it wants. 0: 10 s.
	HandshakeTimeout time.Duration
	// DialTimeout is how long a target has to answer. 0: 30 s.
	DialTimeout time.Duration
	// KeepAliveTimeout is how long an HTTP client may be silent between two requests. 0: 1 minute.
	KeepAliveTimeout time.Duration
	// BodyTimeout is how long an HTTP client may be silent within a request body. 0: 2 minutes.
	BodyTimeout time.Duration
	// IdleTimeout resets a flow in which nothing moves for this long. 0 or less: never.
	IdleTimeout time.Duration
	// HalfClosedTimeout is IdleTimeout for a flow of which one direction has ended: see
	// RelayOptions. 0: 1 hour; negative: never.
	HalfClosedTimeout time.Duration
	// LingerTimeout is how long a client that goes on sending is heard out after its target has
	// closed, or after it was refused, so that the last bytes for it are not overtaken by a
	// reset. 0: 2 s.
	LingerTimeout time.Duration
	// UDPTimeout is how long a UDP mapping of a forward, or a resolved name of an
	// association, lives without a datagram either way. 0: 2 minutes, as RFC 4787 wants;
	// negative: forever.
	UDPTimeout time.Duration

	// Buffers lends the memory of flows, and may be shared. nil: buffers of its own.
	Buffers *Buffers
	// Log gets a debug line per flow and refusal, says when a limit is reached and when it is
	// over, and warns of refusals: of the first of a reason at once, then once a minute with
	// their number. Zero: silent.
	Log zerolog.Logger
}

var errNoDialer = errors.New("proxy options have no Dialer: set one")

// withDefaults checks and completes the options.
func (o Options) withDefaults() (Options, error) {
	if o.Dialer == nil {
		return o, errNoDialer
	}
	if o.ClientPackets == nil {
		o.ClientPackets = new(net.ListenConfig)
	}
	if o.Buffers == nil {
		o.Buffers = new(Buffers)
	}
	defaultTo(&o.MaxConns, 4096)
	defaultTo(&o.MaxMappings, 1024)
	defaultTo(&o.MaxHeaderBytes, 64<<10)
	defaultTo(&o.HandshakeTimeout, 10*time.Second)
	defaultTo(&o.DialTimeout, 30*time.Second)
	defaultTo(&o.KeepAliveTimeout, time.Minute)
	defaultTo(&o.BodyTimeout, 2*time.Minute)
	defaultTo(&o.LingerTimeout, lingerTime)
	defaultTo(&o.UDPTimeout, 2*time.Minute)
	return o, nil
}

func defaultTo[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
