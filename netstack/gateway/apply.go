package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// running is what runs at one moment. It is not changed once it is published; the tunnels
// and services in it guard themselves.
type running struct {
	started  time.Time
	spec     Spec
	tunnels  map[string]*tunnel
	services []*service // one for each of spec.Services, in their order
	admin    *admin     // nil: none
}

func newRunning() *running {
	return &running{started: time.Now(), tunnels: make(map[string]*tunnel)}
}

// transaction makes one Spec of another. Every step that can fail comes before the first
// that cannot be undone:
//
//	rename tunnels -> open new tunnels -> open new listeners -> change tunnels that stay -> publish listeners
//	                                       any failure: undo all, in reverse
//	-> start, alter, stop services -> close tunnels
type transaction struct {
	g       *Gateway
	steps   steps
	have    *running
	want    Spec
	next    *running
	undo    []func()
	opened  map[int]*service   // by index in want.Services
	aside   map[*tunnel]uint16 // the ports of those that stepped aside
	changes []Change           // inside devices
}

// apply makes the gateway what want says and returns what that changed. It fails as a
// whole: then all runs as before.
func (g *Gateway) apply(ctx context.Context, want Spec) ([]Change, error) {
	have := g.now.Load()
	tx := &transaction{g: g, have: have, want: want, steps: difference(have.spec, want), opened: make(map[int]*service), aside: make(map[*tunnel]uint16)}
	tx.next = &running{started: have.started, spec: want, tunnels: make(map[string]*tunnel), admin: have.admin}
	if err := tx.prepare(ctx); err != nil {
		for _, undo := range slices.Backward(tx.undo) {
			undo()
		}
		return nil, err
	}
	tx.commit()
	return append(tx.steps.changes, tx.changes...), nil
}

// prepare does all that can fail.
func (tx *transaction) prepare(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		tx.renameTunnels, tx.openTunnels, tx.openListeners, tx.changeTunnels, tx.openPublished,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// renameTunnels comes before new tunnels, which may have the names that are free then.
func (tx *transaction) renameTunnels(context.Context) error {
	for _, pair := range tx.steps.keep {
		t, old := tx.have.tunnels[pair.have.Name], pair.have.Name
		if old == pair.want.Name {
			continue
		}
		tx.g.hurry(pair.want)
		if err := t.rename(pair.want.Name); err != nil {
			return fmt.Errorf("%s: %w", pair.want.File.Path, err)
		}
		tx.undo = append(tx.undo, func() {
			if err := t.rename(old); err != nil {
				tx.g.log.Error().Err(err).Str("tunnel", old).Msg("tunnel could not be changed back")
			}
		})
	}
	return nil
}

func (tx *transaction) openTunnels(ctx context.Context) error {
	if len(tx.steps.open) > 0 {
		if err := tx.want.dirs(readyDir); err != nil {
			return err
		}
	}
	var errs []error
	for _, spec := range tx.steps.open {
		tx.g.hurry(spec)
		if err := tx.needPort(ctx, spec, nil); err != nil {
			errs = append(errs, err)
			continue
		}
		t, err := tx.g.openTunnel(spec, tx.want)
		if err != nil {
			errs = append(errs, openRefused(spec, err))
			continue
		}
		tx.next.tunnels[spec.Name] = t
		tx.undo = append(tx.undo, t.close)
	}
	return errors.Join(errs...)
}

// changeTunnels is the first step that is felt outside. Should a later tunnel fail, the
// earlier ones are changed back.
func (tx *transaction) changeTunnels(ctx context.Context) error {
	for _, pair := range tx.steps.keep {
		t := tx.have.tunnels[pair.have.Name]
		tx.next.tunnels[pair.want.Name] = t
		if err := tx.needPort(ctx, pair.want, t); err != nil {
			return err
		}
		tx.undo = append(tx.undo, func() {
			ctx := context.WithoutCancel(ctx)
			err := tx.stepAside(ctx, pair.have.File.Config.ListenPort, t)
			if err == nil {
				_, err = t.change(ctx, pair.have)
			}
			if err != nil {
				tx.g.log.Error().Err(err).Str("tunnel", pair.have.Name).Msg("tunnel could not be changed back")
			}
		})
		changes, err := t.change(ctx, pair.want)
		if err != nil {
			return openRefused(pair.want, err)
		}
		tx.changes = append(tx.changes, tx.withoutDetour(t, changes)...)
	}
	return nil
}

// openListeners opens what is new on this machine. A place that is to be given up and is in
// the way of a new one, such as 127.0.0.1:1080 of *:1080, is given up first, and taken again
// should a later step fail.
func (tx *transaction) openListeners(ctx context.Context) error {
	var errs []error
	for _, i := range tx.steps.start {
		if tx.want.Services[i].Kind != Publish {
			tx.giveUp(tx.want.Services[i].Listen)
			errs = append(errs, tx.open(ctx, i))
		}
	}
	if tx.steps.admin {
		errs = append(errs, tx.openAdmin(ctx))
	}
	return errors.Join(errs...)
}

func (tx *transaction) openPublished(ctx context.Context) error {
	var errs []error
	for _, i := range tx.steps.start {
		if tx.want.Services[i].Kind == Publish {
			errs = append(errs, tx.open(ctx, i))
		}
	}
	return errors.Join(errs...)
}

func (tx *transaction) open(ctx context.Context, i int) error {
	spec := tx.want.Services[i]
	s, err := tx.g.openService(ctx, spec, tx.next.tunnels[spec.Tunnel])
	if err != nil {
		return notOpen(spec.Source, spec.String(), err)
	}
	tx.opened[i] = s
	tx.undo = append(tx.undo, s.closeListener)
	return nil
}

// notOpen names the listener that could not be opened and where it was asked for.
func notOpen(source, name string, err error) error {
	return originOf(source, name).refuseFor("", err.Error(), err)
}

// giveUp closes listeners that are no longer asked for and are in the way of l.
func (tx *transaction) giveUp(l Listen) {
	for _, i := range tx.steps.stop {
		s := tx.have.services[i]
		if spec, _ := s.now(); spec.Kind == Publish || !spec.Listen.clashes(l) {
			continue
		}
		s.pause()
		tx.undo = append(tx.undo, s.resume)
	}
	if a := tx.have.admin; a != nil && tx.steps.admin && tx.have.spec.Admin.Listen.clashes(l) {
		a.pause()
		tx.undo = append(tx.undo, a.resume)
	}
}

// openAdmin opens the admin listener where it is asked for now.
func (tx *transaction) openAdmin(ctx context.Context) error {
	want := tx.want.Admin
	tx.next.admin = nil
	if want.Listen.IsZero() {
		return nil
	}
	tx.giveUp(want.Listen)
	a, err := openAdmin(ctx, want, tx.g, tx.g.log)
	if err != nil {
		return notOpen(want.Source, "admin "+want.Listen.String(), err)
	}
	tx.next.admin = a
	tx.undo = append(tx.undo, a.close)
	return nil
}

// commit does what cannot fail. From here on new flows go the new way.
func (tx *transaction) commit() {
	tx.next.services = make([]*service, len(tx.want.Services))
	for _, pair := range tx.steps.alter {
		s, spec := tx.have.services[pair.have], tx.want.Services[pair.want]
		s.alter(spec, tx.next.tunnels[spec.Tunnel])
		tx.next.services[pair.want] = s
	}
	for _, i := range tx.steps.start {
		s := tx.opened[i]
		s.start(tx.next.tunnels[tx.want.Services[i].Tunnel])
		tx.next.services[i] = s
	}
	tx.g.now.Store(tx.next)
	if tx.steps.admin {
		if tx.next.admin != nil {
			tx.next.admin.serve()
		}
		if tx.have.admin != nil {
			tx.have.admin.close()
		}
	}
	tx.retire()
}

// retire lets go of what is no longer asked for: listeners at once, flows after the drain
// time, tunnels once nothing can flow through them.
func (tx *transaction) retire() {
	var stopped []*service
	for _, i := range tx.steps.stop {
		stopped = append(stopped, tx.have.services[i])
	}
	var tunnels []*tunnel
	for _, spec := range tx.steps.close {
		tunnels = append(tunnels, tx.have.tunnels[spec.Name])
	}
	if len(stopped)+len(tunnels) == 0 {
		return
	}
	for _, s := range stopped {
		s.pause()
	}
	tx.g.departing = slices.DeleteFunc(tx.g.departing, departure.over)
	drain, cancel := context.WithTimeout(tx.g.flows, tx.want.Drain)
	gone := make(chan struct{})
	for _, t := range tunnels {
		tx.g.departing = append(tx.g.departing, departure{t, cancel, gone})
	}
	tx.g.leaving.Go(func() {
		defer close(gone)
		defer cancel()
		tx.g.stopAll(drain, stopped)
		if len(tunnels) > 0 {
			<-drain.Done() // services that stay may have flows there, from when it was theirs
		}
		for _, t := range tunnels {
			t.close()
		}
	})
}

// departure is a tunnel that is no longer asked for and that old flows still use.
type departure struct {
	tunnel *tunnel
	cancel context.CancelFunc // ends these flows
	gone   <-chan struct{}    // closed once the tunnel is
}

// hurry ends departures that are in the way of a tunnel that is to be opened or renamed: one
// name, key or port cannot be had twice.
func (g *Gateway) hurry(spec Tunnel) {
	for _, d := range g.departing {
		old := d.tunnel.now()
		if sameName(old, spec) || sameKey(old, spec) || samePort(old, spec) {
			d.cancel()
			<-d.gone
		}
	}
}

// over reports whether the tunnel is closed.
func (d departure) over() bool {
	select {
	case <-d.gone:
		return true
	default:
		return false
	}
}

// stopAll stops services side by side, and tells what is waited for and what was cut.
func (g *Gateway) stopAll(ctx context.Context, services []*service) {
	var flows int
	for _, s := range services {
		flows += s.live()
	}
	if flows > 0 {
		g.log.Info().Int("flows", flows).Msg("waiting for open flows to end")
	}
	var all sync.WaitGroup
	var cut atomic.Uint64
	for _, s := range services {
		all.Go(func() { cut.Add(s.stop(ctx)) })
	}
	all.Wait()
	if n := cut.Load(); n > 0 {
		g.log.Warn().Uint64("flows", n).Msg("open flows were cut")
	}
}

// stop drains and closes everything. cut ends what is left of old flows.
func (g *Gateway) stop(cut context.CancelFunc) {
	now := g.now.Load()
	g.draining.Store(true)
	g.log.Info().Stringer("drain", now.spec.Drain).Msg("gateway is stopping: no new flows")
	drain, cancel := context.WithTimeout(g.flows, now.spec.Drain)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-g.abort:
			cancel()
		case <-drain.Done():
		}
	})
	g.stopAll(drain, now.services)
	cancel()
	watching.Wait()
	cut()
	g.leaving.Wait()
	for _, t := range now.tunnels {
		t.close()
	}
	if now.admin != nil {
		now.admin.close()
	}
	g.log.Info().Msg("gateway has ended")
}
