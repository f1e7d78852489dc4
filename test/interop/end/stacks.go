package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.zx2c4.com/wireguard/conn"
	wireguard "golang.zx2c4.com/wireguard/device"
	upstream "golang.zx2c4.com/wireguard/tun/netstack"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
	"github.com/stillwire/stillwire/test/interop/talk"
)

func openStillwire(f *device.File) (talk.Stack, uint16, error) {
	n, err := netstack.Open(netstack.FromFile(f))
	if err != nil {
		return talk.Stack{}, 0, err
	}
	s, err := n.State()
	return talk.Stillwire(n), s.ListenPort, err
}

func openUpstream(f *device.File) (talk.Stack, uint16, error) {
	var addrs []netip.Addr
	for _, p := range f.Addresses {
		addrs = append(addrs, p.Addr())
	}
	t, n, err := upstream.CreateNetTUN(addrs, nil, f.MTU)
	if err != nil {
		return talk.Stack{}, 0, err
	}
	d := wireguard.NewDevice(t, conn.NewDefaultBind(), wireguard.NewLogger(wireguard.LogLevelError, "upstream: "))
	text, err := uapi(f.Config)
	if err != nil {
		return talk.Stack{}, 0, err
	}
	if err := d.IpcSet(text); err != nil {
		return talk.Stack{}, 0, err
	}
	if err := d.Up(); err != nil {
		return talk.Stack{}, 0, err
	}
	port, err := listenPort(d)
	return stackOf(n), port, err
}

func stackOf(n *upstream.Net) talk.Stack {
	return talk.Stack{
		Dial:      n.DialContext,
		ListenTCP: func(a *net.TCPAddr) (net.Listener, error) { return n.ListenTCP(a) },
		ListenUDP: func(a *net.UDPAddr) (net.PacketConn, error) { return n.ListenUDP(a) },
		Ping:      func(ctx context.Context, addr netip.Addr) error { return ping(ctx, n, addr) },
	}
}

// uapi is a configuration as upstream's device reads it.
func uapi(c device.Config) (string, error) {
	key, err := base64.StdEncoding.DecodeString(c.PrivateKey.Reveal())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "private_key=%x\n", key)
	for _, p := range c.Peers {
		fmt.Fprintf(&b, "public_key=%s\n", p.PublicKey.Hex())
		if !p.Endpoint.IsZero() {
			fmt.Fprintf(&b, "endpoint=%s\n", p.Endpoint)
		}
		for _, prefix := range p.AllowedIPs {
			fmt.Fprintf(&b, "allowed_ip=%s\n", prefix)
		}
	}
	return b.String(), nil
}

func listenPort(d *wireguard.Device) (uint16, error) {
	text, err := d.IpcGet()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "listen_port="); found {
			port, err := strconv.ParseUint(value, 10, 16)
			return uint16(port), err
		}
	}
	return 0, fmt.Errorf("upstream tells no port")
}
