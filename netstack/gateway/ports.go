package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// A UDP port is had by one device at a time, and a device changes its port with a moment in
// which it has none. So before a tunnel is to have a port
//
//	one of ours that has it steps aside, to any that is free: its own turn comes, or it goes
//	it is tried, for a device that was refused a port has to be opened anew

// stepAside frees a port of a tunnel that runs, for the tunnel keeper. It is undone, should a
// later step fail.
func (tx *transaction) stepAside(ctx context.Context, port uint16, keeper *tunnel) error {
	for _, t := range tx.have.tunnels {
		had := t.now()
		if port == 0 || t == keeper || had.isGiven() || t.port() != port {
			continue
		}
		if err := t.move(ctx, had, 0); err != nil {
			return fmt.Errorf("%s: free port %d: %w", had.File.Path, port, err)
		}
		if _, twice := tx.aside[t]; !twice {
			tx.aside[t] = port
			tx.undo = append(tx.undo, func() { tx.stepBack(context.WithoutCancel(ctx), t, had, port) })
		}
	}
	return nil
}

// stepBack undoes stepAside.
func (tx *transaction) stepBack(ctx context.Context, t *tunnel, had Tunnel, port uint16) {
	err := tx.stepAside(ctx, port, t)
	if err == nil && t.port() != port {
		err = t.move(ctx, had, port)
	}
	if err != nil {
		tx.g.log.Error().Err(err).Str("tunnel", had.Name).Msg("tunnel could not be changed back")
	}
}

// port is the one that the device has.
func (t *tunnel) port() uint16 {
	state, err := t.net.State()
	if err != nil {
		return 0
	}
	return state.ListenPort
}

// move gives the device another port and changes nothing else of spec. 0: one that is free.
func (t *tunnel) move(ctx context.Context, spec Tunnel, port uint16) (err error) {
	config := spec.File.Config
	if config.ListenPort = port; port == 0 {
		if config.ListenPort, err = tryPort(ctx, 0); err != nil {
			return err
		}
	}
	_, err = t.net.Apply(ctx, config)
	return err
}

// tryPort opens a UDP port on all addresses and closes it again.
func tryPort(ctx context.Context, port uint16) (uint16, error) {
	pc, err := openPacket(ctx, Listen{Network: "udp", Addr: netip.AddrPortFrom(netip.IPv6Unspecified(), port)})
	if err != nil {
		return 0, err
	}
	defer pc.Close()
	at, err := netip.ParseAddrPort(pc.LocalAddr().String())
	return at.Port(), err
}

// needPort makes sure that a tunnel can have the port of its file. have is the tunnel as it
// runs, or nil.
func (tx *transaction) needPort(ctx context.Context, want Tunnel, have *tunnel) error {
	port := want.File.Config.ListenPort
	if port == 0 || have != nil && have.port() == port {
		return nil
	}
	if err := tx.stepAside(ctx, port, have); err != nil {
		return err
	}
	if _, err := tryPort(ctx, port); err != nil {
		return portRefused(want, err)
	}
	return nil
}

// portRefused says where the port is asked for that the system refuses.
func portRefused(t Tunnel, err error) error {
	return origin{t.where("ListenPort"), "ListenPort"}.refuseFor(fmt.Sprint(t.File.Config.ListenPort), err.Error(), err)
}

// where is the line of a key of [Interface], or the file where it has none.
func (t Tunnel) where(key string) string {
	return cmp.Or(t.File.Where[key], t.File.Where[key+"File"], t.File.Path)
}

// openRefused puts the words of netstack and device into those of the file.
func openRefused(t Tunnel, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) && t.File.Config.ListenPort != 0 {
		return portRefused(t, whyNotOpen(err))
	}
	return fmt.Errorf("%s: %w", t.File.Path, err)
}

// withoutDetour hides a port that a tunnel had for a moment.
func (tx *transaction) withoutDetour(t *tunnel, changes []Change) []Change {
	port, aside := tx.aside[t]
	if !aside {
		return changes
	}
	for i := range changes {
		if c := &changes[i]; c.Field == "listen_port" {
			c.Old = fmt.Sprint(port)
		}
	}
	return slices.DeleteFunc(changes, func(c Change) bool { return c.Field == "listen_port" && c.Old == c.New })
}
