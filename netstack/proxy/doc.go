// Package proxy carries flows from a listener to a dialer: SOCKS5 (RFC 1928, RFC 1929), an
// HTTP proxy (RFC 9110, RFC 9112), and plain TCP and UDP forwards. What is local and what
// is in a tunnel is decided by the listener and the dialer it is given; it knows neither
// WireGuard nor the stack, reads no configuration and opens no listener of its own, but for
// the UDP sockets of SOCKS5 associations, which it asks a PacketListener for.
//
//	client ---- listener ----+                     +---- Dialer ----- target
//	                         |                     |
//	                 SOCKS5, HTTP, forward ---- Relay
//	                 (limits, users, deadlines)    (half-close, reset, idle)
//
// A Server serves streams (NewSOCKS5, NewHTTP, NewMixed, NewTCPForward), a UDPForward
// datagrams. Both are used alike:
//
//   - Serve(ctx, listener) owns the listener and every goroutine that it starts, and returns
//     when all of them have ended. When ctx ends, so do its flows, with a reset.
//   - Update swaps all options at once, for flows that begin afterwards; those that run keep
//     what they began with. The dialer, users, limits and time-outs can change under load.
//   - Shutdown takes no new flows, waits for the old ones, and resets what is left when its
//     context ends.
//   - Counters is a snapshot: bytes, live flows, and each refusal, drop and cut by Reason.
//
// All methods may be called from any goroutine.
//
// What one side does is done to the other: the end of one direction (FIN) is passed on and
// the other direction goes on, a reset becomes a reset, and a target that refuses is refused
// to the client in the words of its protocol: a reply code, a status, a reset. A host name
// is handed to the dialer as the client wrote it, so that it is resolved where the dialer
// resolves.
//
// Proxies are closed by default: CheckListen is the rule for which addresses may be listened
// on without a credential.
package proxy
