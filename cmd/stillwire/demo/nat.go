package demo

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// nat stands before node c, on loopback. It sends c's packets on from a port of its own,
// and now and then takes a new one, as home routers and mobile networks do. Packets to an
// old port still arrive, so whatever is lost is lost by the device under test.
//
//	c --> inside[i] --> outside (the newest) --> remote i
//	c <-- inside[i] <-- any outside          <-- remote i
type nat struct {
	inside  []*net.UDPConn // one for each remote: where c believes it to be
	remotes []netip.AddrPort

	mu      sync.Mutex
	client  netip.AddrPort // c
	outside []*net.UDPConn // the last one is used for sending
	running sync.WaitGroup
}

// newNAT makes a NAT before a client that will speak first, towards the given remotes.
func newNAT(remotes ...netip.AddrPort) (*nat, error) {
	n := &nat{remotes: remotes}
	for range remotes {
		c, err := listenLoopback()
		if err != nil {
			n.close()
			return nil, err
		}
		n.inside = append(n.inside, c)
	}
	if err := n.roam(); err != nil {
		n.close()
		return nil, err
	}
	for i, c := range n.inside {
		n.running.Go(func() { n.outward(c, i) })
	}
	return n, nil
}

func listenLoopback() (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback4, 0)))
	if err != nil {
		return nil, err
	}
	c.SetReadBuffer(4 << 20)
	return c, nil
}

// roam moves the client to a new port.
func (n *nat) roam() error {
	c, err := listenLoopback()
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outside = append(n.outside, c)
	n.running.Go(func() { n.inward(c) })
	return nil
}

// address is where the others can declare the client to be: the first port, which still works.
func (n *nat) address() netip.AddrPort { return localAddr(n.outside[0]) }

func localAddr(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

func (n *nat) outward(c *net.UDPConn, remote int) {
	buf := make([]byte, 1<<16)
	for {
		size, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.client = from
		out := n.outside[len(n.outside)-1]
		n.mu.Unlock()
		out.WriteToUDPAddrPort(buf[:size], n.remotes[remote])
	}
}

func (n *nat) inward(c *net.UDPConn) {
	buf := make([]byte, 1<<16)
	for {
		size, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		n.mu.Lock()
		client := n.client
		n.mu.Unlock()
		if i := slices.Index(n.remotes, from); i >= 0 && client.IsValid() {
			n.inside[i].WriteToUDPAddrPort(buf[:size], client)
		}
	}
}

func (n *nat) close() {
	n.mu.Lock()
	for _, c := range slices.Concat(n.inside, n.outside) {
		c.Close()
	}
	n.mu.Unlock()
	n.running.Wait()
}
