package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/pipe"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// stackNetwork is two gVisor stacks joined by a pipe: the near one dials, the far one has the
// targets. Its connections are gonet's, whose errors are words and which cannot be reset but
// by way of their endpoint.
type stackNetwork struct{ near, far *stack.Stack }

var nearAddr, farAddr = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

func newStackNetwork(t testing.TB) network {
	near, far := pipe.New("\x02\x00\x00\x00\x00\x01", "\x02\x00\x00\x00\x00\x02", 1420)
	n := &stackNetwork{newStack(t, near, nearAddr), newStack(t, far, farAddr)}
	return n
}

func newStack(t testing.TB, link stack.LinkEndpoint, addr netip.Addr) *stack.Stack {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: stackBuffer, Max: stackBuffer}
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive)
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: stackBuffer, Max: stackBuffer}
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &send)
	if err := s.CreateNIC(1, link); err != nil {
		t.Fatal(err)
	}
	if err := s.AddProtocolAddress(1, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddrFromSlice(addr.AsSlice()).WithPrefix(),
	}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}})
	t.Cleanup(func() { s.Close(); s.Wait() })
	return s
}

const stackBuffer = 256 << 10

func (n *stackNetwork) Buffers() int { return 2 * stackBuffer }

func (n *stackNetwork) Host() string { return farAddr.String() }

func fullAddr(address string) (tcpip.FullAddress, error) {
	a, err := netip.ParseAddrPort(address)
	full := tcpip.FullAddress{NIC: 1, Port: a.Port()}
	if a.Addr().IsValid() && !a.Addr().IsUnspecified() {
		full.Addr = tcpip.AddrFromSlice(a.Addr().AsSlice())
	}
	return full, err
}

func (n *stackNetwork) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	a, err := fullAddr(address)
	if err != nil {
		return nil, err
	}
	if network == "udp" {
		return gonet.DialUDP(n.near, nil, &a, ipv4.ProtocolNumber)
	}
	var wq waiter.Queue
	ep, e := n.near.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if e != nil {
		return nil, errors.New(e.String())
	}
	entry, ready := waiter.NewChannelEntry(waiter.WritableEvents)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	e = ep.Connect(a)
	if _, ok := e.(*tcpip.ErrConnectStarted); ok {
		select {
		case <-ctx.Done():
			ep.Close()
			return nil, ctx.Err()
		case <-ready:
		}
		e = ep.LastError()
	}
	if e != nil {
		ep.Close()
		return nil, &net.OpError{Op: "connect", Net: "tcp", Err: errors.New(e.String())}
	}
	return &stackConn{gonet.NewTCPConn(&wq, ep), ep}, nil
}

func (n *stackNetwork) ListenPacket(_ context.Context, _, address string) (net.PacketConn, error) {
	a, err := fullAddr(address)
	if err != nil {
		return nil, err
	}
	return gonet.DialUDP(n.near, &a, nil, ipv4.ProtocolNumber)
}

func (n *stackNetwork) Listen(_ context.Context, _, address string) (net.Listener, error) {
	a, err := fullAddr(address)
	if err != nil {
		return nil, err
	}
	var wq waiter.Queue
	ep, e := n.far.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
	if e != nil {
		return nil, errors.New(e.String())
	}
	if e := ep.Bind(a); e != nil {
		return nil, errors.New(e.String())
	}
	if e := ep.Listen(1024); e != nil {
		return nil, errors.New(e.String())
	}
	return &stackListener{gonet.NewTCPListener(n.far, &wq, ep), ep, &wq, make(chan struct{})}, nil
}

// stackListener hands out connections that can be reset.
type stackListener struct {
	*gonet.TCPListener
	ep   tcpip.Endpoint
	wq   *waiter.Queue
	done chan struct{}
}

func (l *stackListener) Accept() (net.Conn, error) {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents)
	l.wq.EventRegister(&entry)
	defer l.wq.EventUnregister(&entry)
	for {
		ep, wq, err := l.ep.Accept(nil)
		if _, wait := err.(*tcpip.ErrWouldBlock); wait {
			select {
			case <-ready:
				continue
			case <-l.done:
				return nil, net.ErrClosed
			}
		}
		if err != nil {
			return nil, errors.New(err.String())
		}
		return &stackConn{gonet.NewTCPConn(wq, ep), ep}, nil
	}
}

func (l *stackListener) Close() error {
	close(l.done)
	return l.TCPListener.Close()
}

// stackConn can be reset.
type stackConn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
}

func (c *stackConn) Abort() { c.ep.Abort() }

// echoUDP answers each datagram with itself, on the far side.
func (n *stackNetwork) echoUDP(t testing.TB) (address string) {
	t.Helper()
	pc, err := gonet.DialUDP(n.far, &tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(farAddr.AsSlice()), Port: 7}, nil, ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			m, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(buf[:m], from)
		}
	}()
	t.Cleanup(func() { pc.SetReadDeadline(past()); <-done; pc.Close() })
	return netip.AddrPortFrom(farAddr, 7).String()
}
