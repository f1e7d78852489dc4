//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/stillwire/stillwire/mesh"
)

// Uninstall removes all that a Host with the same options ever made, and returns what it
// removed. It needs no memory of it, and no agent that lives: routes, rules, links and the
// table are known by what marks them as ours. A *BusyError is returned while one serves the
// interface.
func Uninstall(ctx context.Context, o Options) ([]mesh.HostChange, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	around, err := k.readSurroundings(o)
	if err != nil {
		return nil, err
	}
	have, err := k.observe(o, around.names)
	if err != nil {
		return nil, err
	}
	if have.link.index != 0 && have.link.kind == kindTUN {
		if err := o.unserved(); err != nil {
			return nil, err
		}
	}
	_, rules := ruleSteps(o, have.rules, nil)
	steps := append(o.removeCNI(), rules...)
	_, routes := routeSteps(o, have.routes, nil)
	steps = append(steps, routes...)
	steps = append(steps, removeLink(o.Interface, have.link)...)
	_, encap := o.encapSteps(have.encap, linkState{})
	steps = append(steps, encap...)
	foreign, errForeign := k.readForeign(o)
	for _, f := range foreign {
		if len(f.ours) > 0 {
			steps = append(steps, closeForeign(o, f))
		}
	}
	settings, errSettings := o.restoreSteps()
	steps = append(steps, settings...)
	table, err := removeTable(k, o)
	steps = append(steps, table...)
	err = errors.Join(err, errForeign, errSettings)
	var done []mesh.HostChange
	for _, s := range steps {
		if ctx.Err() != nil {
			return done, errors.Join(err, ctx.Err())
		}
		failure := s.do(k)
		if failure == nil {
			done = append(done, s.changes...)
		}
		err = errors.Join(err, failure)
	}
	if len(done) > 0 && len(settings) == 0 {
		o.Log.Info().Str("state_dir", o.StateDir).Msg("no old value of a sysctl is written down here; had the agent another state folder, give that to restore them")
	}
	return done, err
}

// unserved attaches to the TUN for a moment, which only one process can. A machine that has no
// TUNs any more has nobody who serves one.
func (o Options) unserved() error {
	file, err := o.open()
	if err == nil {
		return file.Close()
	}
	var busy *BusyError
	if errors.As(err, &busy) {
		return busy
	}
	return nil
}

// removeLink removes a link of ours, which takes its addresses and routes along.
func removeLink(name string, have linkState) []step {
	if have.index == 0 || have.kind != kindTUN {
		return nil
	}
	return []step{{
		changes: []mesh.HostChange{{What: "link", Name: name, Old: "tun"}}, field: tunnel,
		do: func(k *kernel) error { return k.removeLink(name) },
	}}
}

// removeTable comes last: until the routes are gone it keeps packets in. One that somebody else
// has made stays.
func removeTable(k *kernel, o Options) ([]step, error) {
	table, err := k.findTable()
	var have tableState
	if err == nil && table != nil {
		have, err = k.readTable()
	}
	if err != nil {
		return nil, fmt.Errorf("read nftables: %w", err)
	}
	if table == nil {
		return nil, nil
	}
	foreign, err := have.foreign(o.wantFirewall(mesh.HostPlan{}, &surroundings{}))
	if foreign || err != nil {
		return nil, err
	}
	return []step{{
		changes: []mesh.HostChange{{What: "table", Name: "inet " + tableName, Old: "there"}}, field: "firewall",
		do: func(k *kernel) error { k.nft.DelTable(table); return k.commit() },
	}}, nil
}
