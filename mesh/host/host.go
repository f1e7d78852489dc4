//go:build linux

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// Host is the machine that the process runs on. It meets mesh.Host.
type Host struct {
	opt     Options
	facts   atomic.Pointer[surroundings] // the last that was read; nil: none
	changes atomic.Uint64                // of the surroundings, as Run sees them
	watched atomic.Bool                  // Run sees them
	index   atomic.Int64                 // of the TUN when it was last looked at; 0: none
	filters atomic.Uint64                // changes of foreign chains, as Run sees them
	foreign *foreignLook                 // the last; nil: none. It belongs to the goroutine of Apply.
	fight   *fight
	unsaved []changed // old values of sysctls that no file has yet. It belongs to the goroutine of Apply.

	mu  sync.Mutex // guards tun
	tun *TUN       // what OpenTUN returned last; nil: nothing
}

// New checks the options and does nothing else.
func New(o Options) (*Host, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Host{opt: o, fight: newFight(o.Interface)}, nil
}

// step is one thing to do, and the changes that it makes.
type step struct {
	changes []mesh.HostChange
	do      func(*kernel) error
	field   string // of the problem, when it cannot be done
	// What provides a thing, when it fails, takes the steps along that need it: without the
	// firewall there are no new routes into the tunnel.
	provides string
	needs    []string
}

// Apply makes the machine equal to the plan. Steps that lack a right or a feature of the kernel
// become problems, others that do not work are returned as errors, after all the rest was done.
func (h *Host) Apply(ctx context.Context, want mesh.HostPlan) ([]mesh.HostChange, []mesh.Problem, error) {
	k, err := openKernel()
	if err != nil {
		return nil, nil, err
	}
	defer k.close()
	goal, steps, problems, err := h.steps(k, want)
	if err != nil {
		if p, ok := h.opt.problem("", err); ok {
			return nil, []mesh.Problem{p}, nil
		}
		return nil, nil, err
	}
	done, more, err := h.do(ctx, k, steps)
	problems = append(problems, more...)
	if err := h.saveSettings(); err != nil {
		problems = append(problems, h.opt.unsavedSettings(err))
	}
	if link, err := k.readLink(h.opt.Interface); err == nil {
		h.index.Store(int64(link.index))
	}
	return done, append(problems, h.fight.judge(time.Now(), goal, done, err == nil)...), err
}

// do goes through the steps, on after those that fail.
func (h *Host) do(ctx context.Context, k *kernel, steps []step) (done []mesh.HostChange, problems []mesh.Problem, err error) {
	missing := make(map[string]bool)
	for _, s := range steps {
		if ctx.Err() != nil {
			return done, problems, errors.Join(err, ctx.Err())
		}
		if slices.ContainsFunc(s.needs, func(n string) bool { return missing[n] }) {
			continue
		}
		failure := s.do(k)
		if failure == nil {
			done = append(done, s.changes...)
			continue
		}
		if s.provides != "" {
			missing[s.provides] = true
		}
		if p, ok := h.opt.problem(s.field, failure); ok {
			problems = append(problems, p)
			continue
		}
		err = errors.Join(err, failure)
	}
	return done, compact(problems), err
}

// Plan returns what Apply would change. Where something cannot be read, it is taken as absent.
func (h *Host) Plan(want mesh.HostPlan) (changes []mesh.HostChange, err error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	_, steps, _, err := h.steps(k, want)
	for _, s := range steps {
		changes = append(changes, s.changes...)
	}
	return changes, err
}

// steps compares the machine with the plan. What is added comes before what is removed, and
// the firewall before the routes that rely on it.
func (h *Host) steps(k *kernel, plan mesh.HostPlan) (want wanted, steps []step, problems []mesh.Problem, err error) {
	around, err := h.around(k)
	if err != nil {
		return want, nil, nil, err
	}
	opt := h.opt
	opt.Encapsulation = cmp.Or(plan.Encapsulation, opt.Encapsulation)
	have, err := k.observe(opt, around.names)
	if err != nil {
		return want, nil, nil, err
	}
	want, problems = opt.want(plan, around)
	steps = append(steps, h.linkSteps(have.link, want.link)...)
	addEncap, removeEncap := opt.encapSteps(have.encap, want.encap)
	steps = append(steps, addEncap...)
	own, settings := h.settingSteps(want.settings)
	steps = append(steps, own...)
	add, remove := addressSteps(h.opt.Interface, have.addresses, want.addresses)
	steps = append(steps, add...)
	filters, afterwards, named := h.filterSteps(k, plan, &want)
	steps, problems = append(steps, filters...), append(problems, named...)
	addRoutes, removeRoutes := routeSteps(h.opt, have.routes, want.routes)
	if plan.Partial {
		removeRoutes = nil
	}
	addRules, removeRules := ruleSteps(h.opt, have.rules, want.rules)
	pods := opt.cniSteps(plan, want.link.mtu)
	return want, slices.Concat(steps, settings, addRoutes, addRules, pods, removeRules, removeRoutes, remove, removeEncap, afterwards), problems, nil
}

// filterSteps are those of packet filters: ours, those of others that stand in the way, and the
// connections that are tracked.
func (h *Host) filterSteps(k *kernel, plan mesh.HostPlan, want *wanted) (steps, afterwards []step, problems []mesh.Problem) {
	chains, err := h.foreignChains(k)
	if err != nil {
		return []step{failing(firewall, err)}, nil, nil
	}
	if tracks(chains) {
		want.firewall.trackPort()
	}
	have, err := k.readTable()
	if err != nil {
		return []step{failing(firewall, fmt.Errorf("read nftables: %w", err))}, nil, nil
	}
	foreign, err := have.foreign(want.firewall)
	if err == nil && foreign {
		err = notOurs()
	}
	if err != nil {
		return []step{failing(firewall, err)}, nil, nil
	}
	if steps, err = firewallSteps(have, want.firewall); err != nil {
		return []step{failing(firewall, err)}, nil, nil
	}
	forward, problems := h.forwardSteps(chains, plan)
	return append(steps, forward...), h.opt.conntrackSteps(have, want.firewall), problems
}

// failing is a step that could not even be prepared.
func failing(field string, err error) step {
	return step{field: field, provides: field, do: func(*kernel) error { return err }}
}

// problem makes an error one that lasts as long as its cause: a right or a feature that is
// missing. It is not ok for those that may work at the next try.
func (o Options) problem(field string, err error) (p mesh.Problem, ok bool) {
	p = mesh.Problem{
		Subject: mesh.Subject{Kind: mesh.KindHost, Name: o.Interface},
		Field:   field, Reason: mesh.Unsupported, Detail: err.Error() + "; the rest goes on",
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		p.Remedy = "run with the capability NET_ADMIN in the machine's network namespace"
	case errors.Is(err, unix.EROFS):
		p.Remedy = "set it on the machine, or mount its /proc/sys/net somewhere and give that folder (SysctlDir, --sysctl-dir)"
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOPROTOOPT):
		p.Remedy = "the kernel lacks it: load the module, or turn the option on"
	default:
		var named *problemError
		if !errors.As(err, &named) {
			return mesh.Problem{}, false
		}
		p.Reason, p.Remedy = named.reason, named.remedy
	}
	return p, true
}

// problemError is an error that is a problem, with its remedy.
type problemError struct {
	reason mesh.Reason
	text   string
	remedy string
}

func (e *problemError) Error() string { return e.text }

// compact keeps one problem of each ID.
func compact(problems []mesh.Problem) (out []mesh.Problem) {
	seen := make(map[mesh.ID]bool)
	for _, p := range problems {
		if !seen[p.ID()] {
			seen[p.ID()] = true
			out = append(out, p)
		}
	}
	return out
}
