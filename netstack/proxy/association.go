package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// association is one SOCKS5 UDP association: a socket on which the client is heard, and one
// per address family towards targets, opened when it is needed.
//
//	client --(header, payload)--> hear --> send --> out[v4], out[v6] --> targets
//	       <-(header, payload)-- answer <---------- out[v4], out[v6] <--
//
// The first datagram to a name makes the dialer resolve it. Those that follow wait for the
// answer, in order, and hold up no other destination.
type association struct {
	f    *flow
	in   *udpSocket
	idle *idleTimer

	host  netip.Addr                     // the client's
	port  uint16                         // the client's when it said which; 0: that of its first datagram
	peer  atomic.Pointer[netip.AddrPort] // the client, once it has been heard
	names *nameCache

	mu     sync.Mutex
	out    [2]*udpSocket // IPv4, IPv6
	closed bool
	work   sync.WaitGroup // Add only under mu and while not closed, or before start returns
}

// newAssociation opens the client's socket. expect is the address that the client says it
// will send from.
func newAssociation(f *flow, expect destination) (*association, error) {
	local, err := localAddr(f.client)
	if err != nil {
		return nil, err
	}
	pc, err := f.o.ClientPackets.ListenPacket(f.ctx, "udp", netip.AddrPortFrom(local, 0).String())
	if err != nil {
		return nil, fmt.Errorf("open socket for client: %w", err)
	}
	host := addrPortOf(f.client.RemoteAddr()).Addr()
	if !host.IsValid() {
		host = local
	}
	a := &association{f: f, in: newUDPSocket(pc), host: host, port: expectedPort(host, expect)}
	a.names = newNameCache(f, a.send)
	return a, nil
}

// expectedPort believes the port that a client gives when it knows its own address, or is on
// this machine. Others are behind NAT, or have not bound their socket yet.
func expectedPort(host netip.Addr, expect destination) uint16 {
	if expect.addr == host || expect.addr.IsUnspecified() && host.IsLoopback() {
		return expect.port
	}
	return 0
}

func (a *association) bound() netip.AddrPort { return addrPortOf(a.in.LocalAddr()) }

// start relays until the returned function is called, which waits for all goroutines.
func (a *association) start(idle *idleTimer) (stop func()) {
	a.idle = idle
	ctx, cancel := context.WithCancel(a.f.ctx)
	a.names.ctx = ctx
	a.work.Go(func() { a.hear(ctx) })
	return func() {
		cancel()
		a.mu.Lock()
		a.closed = true
		a.in.Close()
		for _, s := range a.out {
			if s != nil {
				s.Close()
			}
		}
		a.mu.Unlock()
		a.work.Wait()
		a.names.wait()
	}
}

// hear takes the client's datagrams.
func (a *association) hear(ctx context.Context) {
	buf := a.f.o.Buffers.get(largeBuffer)
	defer a.f.o.Buffers.put(buf)
	for ctx.Err() == nil {
		n, from, _, err := a.in.read(buf)
		if err != nil {
			if passing(err) {
				continue
			}
			return
		}
		if !a.isClient(from) {
			a.drop(ReasonForeign)
			continue
		}
		a.idle.touch()
		a.forward(ctx, buf[:n])
	}
}

// isClient reports whether a datagram is the client's. The first one decides the port.
func (a *association) isClient(from netip.AddrPort) bool {
	if p := a.peer.Load(); p != nil {
		return *p == from
	}
	if from.Addr().WithZone("") != a.host.WithZone("") || a.port != 0 && from.Port() != a.port {
		return false
	}
	a.peer.Store(&from)
	return true
}

// forward passes one datagram of the client on.
func (a *association) forward(ctx context.Context, b []byte) {
	d, payload, err := parseDatagram(b)
	switch {
	case err != nil:
		a.drop(datagramReason(err))
	case d.port == 0:
		a.drop(ReasonUnsendable)
	case d.addr.IsValid():
		a.send(ctx, payload, d.addrPort())
	default:
		a.names.send(payload, d.String())
	}
}

func datagramReason(err error) Reason {
	var bad *socksError
	if errors.As(err, &bad) {
		return bad.reason
	}
	return ReasonProtocol // it ends within its header
}

// send sends to a target.
func (a *association) send(ctx context.Context, payload []byte, to netip.AddrPort) {
	s, err := a.socket(ctx, to.Addr())
	if err == nil {
		err = s.write(payload, to, netip.Addr{})
	}
	if err != nil {
		a.drop(sendReason(err))
		return
	}
	a.f.s.counts.datagramsSent.Add(1)
	a.f.s.counts.sent.Add(uint64(len(payload)))
}

// socket returns the socket of the address's family, opening it for the first datagram.
func (a *association) socket(ctx context.Context, to netip.Addr) (*udpSocket, error) {
	family, network, any := 0, "udp4", "0.0.0.0:0"
	if to.Is6() {
		family, network, any = 1, "udp6", "[::]:0"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, net.ErrClosed
	}
	if a.out[family] != nil {
		return a.out[family], nil
	}
	pc, err := a.f.o.Packets.ListenPacket(ctx, network, any)
	if err != nil {
		return nil, fmt.Errorf("open socket for targets: %w", err)
	}
	a.f.s.counts.opened.Add(1)
	s := newUDPSocket(pc)
	a.out[family] = s
	a.work.Go(func() { a.answer(s) })
	return s, nil
}

// answer passes datagrams from targets to the client.
func (a *association) answer(s *udpSocket) {
	buf := a.f.o.Buffers.get(largeBuffer)
	defer a.f.o.Buffers.put(buf)
	for {
		// The room for the header is in front, so that the payload stays where it is.
		n, from, _, err := s.read(buf[maxDatagramHeader:])
		switch {
		case err != nil && passing(err):
			continue
		case err != nil:
			return
		}
		a.idle.touch()
		a.tell(buf, n, from)
	}
}

// tell sends the client a datagram whose payload is in buf, after room for its header.
func (a *association) tell(buf []byte, n int, from netip.AddrPort) {
	peer := a.peer.Load()
	if peer == nil {
		a.drop(ReasonForeign)
		return
	}
	var head [maxDatagramHeader]byte
	header := appendDatagramHeader(head[:0], from)
	at := maxDatagramHeader - len(header)
	copy(buf[at:], header)
	if err := a.in.write(buf[at:maxDatagramHeader+n], *peer, netip.Addr{}); err != nil {
		a.drop(sendReason(err))
		return
	}
	a.f.s.counts.datagramsReceived.Add(1)
	a.f.s.counts.received.Add(uint64(n))
}

func (a *association) drop(r Reason) {
	a.f.s.counts.dropped.add(r)
	a.f.log.Debug().Str("reason", string(r)).Msg("datagram dropped")
}
