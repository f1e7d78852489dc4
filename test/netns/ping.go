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
// how many were answered. It stops at the first that is not.
func (n *Namespace) Ping(dst netip.Addr, count, size int) (answered int, err error) {
	var c *icmp.PacketConn
	err = n.Do(func() (err error) {
		c, err = listenICMP(dst)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ping from %s: %w", n.role, err)
	}
	defer c.Close()
	var id [2]byte
	rand.Read(id[:])
	for seq := range count {
		echo := &icmp.Echo{ID: int(binary.BigEndian.Uint16(id[:])), Seq: seq, Data: make([]byte, size)}
		if err := ping(c, dst, echo); err != nil {
			return seq, fmt.Errorf("ping %s from %s, echo %d of %d bytes: %w", dst, n.role, seq, size, err)
		}
	}
	return count, nil
}

func listenICMP(dst netip.Addr) (*icmp.PacketConn, error) {
	if dst.Is4() {
		return icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	}
	return icmp.ListenPacket("ip6:ipv6-icmp", "::")
}

func ping(c *icmp.PacketConn, dst netip.Addr, echo *icmp.Echo) error {
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
	if err := c.SetReadDeadline(time.Now().Add(pingWait)); err != nil {
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
