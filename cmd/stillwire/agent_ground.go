package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
	"github.com/stillwire/stillwire/netstack"
)

// listenPacket opens a UDP socket at an address inside the tunnel.
type listenPacket func(netip.AddrPort) (net.PacketConn, error)

// standbyLook is how often an agent that waits looks whether the other one has ended.
const standbyLook = 20 * time.Millisecond

// awaitTUN opens the TUN, with --standby once no other agent serves it any more.
func (c *agentCommand) awaitTUN(ctx context.Context, h *host.Host, log zerolog.Logger) (tun.Device, error) {
	look := time.NewTicker(standbyLook)
	defer look.Stop()
	for waits := false; ; waits = true {
		dev, err := h.OpenTUN()
		var busy *host.BusyError
		if !c.Standby || !errors.As(err, &busy) {
			return dev, err
		}
		if !waits {
			log.Info().Str("interface", c.Interface).Int("pid", busy.PID).Msg("another agent serves this machine, waiting for its end to take its place")
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// openTUN stands an agent on a kernel TUN.
func (c *agentCommand) openTUN(ctx context.Context, log zerolog.Logger) (*ground, error) {
	o := c.options(log)
	o.Masquerade, o.ForwardRules, o.NoRepair, o.NoOffload = c.Masquerade, c.ForwardRules, !c.Repair, c.NoOffload
	h, err := host.New(o)
	if err != nil {
		return nil, &wrong{err}
	}
	dev, err := c.awaitTUN(ctx, h, log)
	if err != nil {
		return nil, err
	}
	d, err := device.Open(device.Options{
		Name: c.Interface, TUN: dev, Bind: device.NewBind(c.bind()), StateDir: c.StateDir, Log: log,
	})
	if err != nil {
		return nil, err // the TUN is closed
	}
	if c.UAPI != "" {
		if err := d.ListenUAPI(c.UAPI); err != nil {
			_ = d.Close() // the other error says more
			return nil, err
		}
	}
	return &ground{mode: mesh.TUN, device: d, host: h, fwmark: c.FwMark, listen: listenHost}, nil
}

func listenHost(a netip.AddrPort) (net.PacketConn, error) {
	return net.ListenUDP("udp", net.UDPAddrFromAddrPort(a))
}

// openNetstack stands an agent on a TCP/IP stack in the process.
func (c *agentCommand) openNetstack(log zerolog.Logger, reason string) (*ground, error) {
	around, err := host.New(c.options(log))
	if err != nil {
		return nil, &wrong{err}
	}
	n, err := netstack.Open(netstack.Options{
		Name: c.Interface, Bind: device.NewBind(c.bind()), StateDir: c.StateDir, Log: log, DNS: c.DNS,
	})
	if err != nil {
		return nil, err
	}
	g := &ground{services: c.services(n, log), mode: mesh.Netstack, reason: reason, device: n.Device(), host: &stackHost{Host: around, net: n}}
	g.listen = func(a netip.AddrPort) (net.PacketConn, error) {
		return n.ListenUDPAddrPort(a)
	}
	return g, nil
}

// stackHost is the machine as a node in netstack mode may change it: not at all, but for the
// addresses of its own stack. What it is like is told by the Host.
type stackHost struct {
	*host.Host
	net *netstack.Net
}

// Apply gives the stack its addresses and its MTU.
func (h *stackHost) Apply(_ context.Context, want mesh.HostPlan) ([]mesh.HostChange, []mesh.Problem, error) {
	changes, err := h.Plan(want)
	if err != nil || len(changes) == 0 {
		return nil, nil, err
	}
	if err := h.net.SetAddresses(want.Addresses); err != nil {
		return nil, nil, fmt.Errorf("set the addresses of the stack: %w", err)
	}
	return changes, nil, h.net.SetMTU(cmp.Or(want.MTU, netstack.DefaultMTU))
}

// Plan returns what Apply would change.
func (h *stackHost) Plan(want mesh.HostPlan) (changes []mesh.HostChange, err error) {
	have := h.net.Addresses()
	for _, a := range want.Addresses {
		if !slices.Contains(have, a) {
			changes = append(changes, mesh.HostChange{What: "address", Name: a.String(), New: "stack"})
		}
	}
	for _, a := range have {
		if !slices.Contains(want.Addresses, a) {
			changes = append(changes, mesh.HostChange{What: "address", Name: a.String(), Old: "stack"})
		}
	}
	return changes, nil
}
