// Package netstack is a WireGuard tunnel with a TCP/IP stack in the process: net.Conns over
// WireGuard without an interface of the system, without root, without capabilities. Many
// tunnels live side by side in one process; there is no global state.
//
// # A tunnel in two calls
//
//	f, err := device.ParseFile("wg0.conf")      // any wg-quick file
//	n, err := netstack.Open(netstack.FromFile(f))
//	defer n.Close()
//
// or without a file:
//
//	n, err := netstack.Open(netstack.Options{
//		Config:    device.Config{PrivateKey: key, Peers: []device.PeerConfig{peer}},
//		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")},
//		DNS:       []netip.Addr{netip.MustParseAddr("10.0.0.53")},
//	})
//
// From then on [Net] is to the tunnel what package net is to the system:
//
//	c, err := n.DialContext(ctx, "tcp", "db.internal:5432")
//	l, err := n.Listen("tcp", ":80")
//	p, err := n.ListenPacket("udp", ":53")
//	client := &http.Client{Transport: n.HTTPTransport()}
//	rtt, err := n.Ping(ctx, netip.MustParseAddr("10.0.0.1"))
//
// [TCPConn] has CloseWrite, and all have deadlines. Errors are *net.OpError, with
// syscall.ECONNREFUSED and its like inside, as from any other socket.
//
// # The first dial
//
// A TCP dial waits, within its context, until there is a session with the peer that owns
// the address: a lost handshake message costs no lost SYN. An address that no peer owns
// fails at once with [device.ErrNoPeer]. A dial that runs out of time says which part was
// missing: the handshake with which peer at which endpoint (a *[device.HandshakeError]), or
// the answer of the host behind a peer that is well. errors.Is(err,
// context.DeadlineExceeded) holds either way.
//
// # Names
//
// Names are looked up by [Resolver], which asks the tunnel's DNS servers through the tunnel
// and nobody else: nothing is asked of the host's resolver unless Options.HostDNS is set.
// Without a DNS server, a dial by name fails and says so. For a library that wants a
// *net.Resolver there is Resolver.NetResolver.
//
// # Changes
//
// Everything changes live: peers by Apply, SetPeers, RemovePeers (only what differs is
// touched, and returned), addresses by SetAddresses (connections on addresses that stay go
// on), SetMTU, SetDNS. With Apply and State a *Net is also what a mesh agent drives.
//
// # The stack alone
//
//	   program                                     WireGuard
//	      |                                            |
//	DialTCP, ListenTCP,     +-----------+        Read  |  queue, 128 packets a batch
//	DialUDP, ListenUDP, --> |   Stack   | ------------>|
//	DialPing, Ping          |  (gVisor) | <------------|
//	      |                 +-----------+        Write |
//
// [Stack] is the TCP/IP half, a tun.Device, for those who bring a WireGuard device of their
// own. Its outbound queue never drops: senders wait. What the stack cannot use is dropped
// and counted by [DropReason], see Stack.Stats.
//
// # Coming from wireguard-go's tun/netstack
//
// [Net] has every method of its Net. CreateNetTUN followed by device.NewDevice and IpcSet
// becomes Open. The connections are this package's types instead of gonet's, with the same
// methods and more.
//
// # Goroutines, closing
//
// All methods may be called from any goroutine. Close may be called from anywhere, at any
// moment, more than once: it ends whatever waits, with net.ErrClosed, and returns when every
// goroutine, socket and timer of the tunnel is gone.
package netstack
