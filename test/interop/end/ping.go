package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	upstream "golang.zx2c4.com/wireguard/tun/netstack"
)

// ping sends one echo request through upstream's ping socket and waits for its answer.
func ping(ctx context.Context, n *upstream.Net, addr netip.Addr) error {
	c, err := n.DialPingAddr(netip.Addr{}, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	request, reply, protocol := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if addr.Is6() {
		request, reply, protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	m := icmp.Message{Type: request, Body: &icmp.Echo{Seq: 1, Data: []byte("upstream")}}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.SetReadDeadline(deadline.Add(-time.Second))
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	answer := make([]byte, 1500)
	got, err := c.Read(answer)
	if err != nil {
		return err
	}
	if m, err := icmp.ParseMessage(protocol, answer[:got]); err != nil || m.Type != reply {
		return fmt.Errorf("the answer to a ping is %v, %v", m, err)
	}
	return nil
}
