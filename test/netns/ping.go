//go:build linux

package netns

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// ICMP protocol numbers, which icmp.ParseMessage wants.
const (
	protocolICMP   = 1
	protocolICMPv6 = 58
)

// pingWait is how long the last answer may take.
const pingWait = 5 * time.Second

// Ping sends count echo requests of size bytes of payload, one after each answer, and returns
// how many were answered. It stops at the first that is not, within 5 s.
func (n *Namespace) Ping(dst netip.Addr, count, size int) (answered int, err error) {
	c, id, err := n.listenICMP(dst)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for seq := range count {
		echo := &icmp.Echo{ID: id, Seq: seq, Data: make([]byte, size)}
		if err := ping(c, dst, echo, pingWait); err != nil {
			return seq, fmt.Errorf("ping %s from %s, echo %d of %d bytes: %w", dst, n.role, seq, size, err)
		}
	}
	return count, nil
}

// AwaitPing sends echo requests until one is answered, for 30 s at most. A TUN that a process
// has just opened loses packets while the kernel has not taken note, and WireGuard keeps no
// more than 128 for the time of a handshake: what shall be counted comes after this.
func (n *Namespace) AwaitPing(dst netip.Addr) error {
	c, id, err := n.listenICMP(dst)
	if err != nil {
		return err
	}
	defer c.Close()
	for seq := range int(patience / awaitStep) {
		if err = ping(c, dst, &icmp.Echo{ID: id, Seq: seq}, awaitStep); err == nil {
			return nil
		}
	}
	return fmt.Errorf("ping %s from %s, for %v: %w", dst, n.role, patience, err)
}

const awaitStep = 200 * time.Millisecond

// listenICMP returns a socket and an identifier for what is sent on it.
func (n *Namespace) listenICMP(dst netip.Addr) (c *icmp.PacketConn, id int, err error) {
	var random [2]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, 0, err
	}
	network, local := "ip4:icmp", "0.0.0.0"
	if dst.Is6() {
		network, local = "ip6:ipv6-icmp", "::"
	}
	err = n.Do(func() (err error) {
		c, err = icmp.ListenPacket(network, local)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("ping from %s: %w", n.role, err)
	}
	return c, int(binary.BigEndian.Uint16(random[:])), nil
}

func ping(c *icmp.PacketConn, dst netip.Addr, echo *icmp.Echo, wait time.Duration) error {
	request, reply, protocol := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), protocolICMP
	if dst.Is6() {
		request, reply, protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, protocolICMPv6
	}
	m := icmp.Message{Type: request, Body: echo}
	b, err := m.Marshal(nil) // the kernel sums ICMPv6
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(b, &net.IPAddr{IP: dst.AsSlice()}); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	return awaitReply(c, reply, protocol, echo)
}

func awaitReply(c *icmp.PacketConn, reply icmp.Type, protocol int, echo *icmp.Echo) error {
	b := make([]byte, 64<<10)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(protocol, b[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if got, ok := m.Body.(*icmp.Echo); ok && got.ID == echo.ID && got.Seq == echo.Seq && len(got.Data) == len(echo.Data) {
			return nil
		}
	}
}
