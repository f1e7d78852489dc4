package mesh

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
)

const (
	// settleRounds is how often a plan may change what the node claims, and so be made anew.
	settleRounds = 3
)

// retryAfter is how long after the n-th failure in a row the next pass is made.
func retryAfter(n int) time.Duration { return min(time.Second<<min(n, 10), 30*time.Second) }

// pass makes the node equal to the plan of this moment.
func (a *Agent) pass(ctx context.Context) {
	if a.due(retry); !a.informed() { // what there is from before is better than nothing
		_, problems := a.store.Snapshot()
		a.reportProblems(problems)
		a.tell(a.makeStatus(Plan{}, problems))
		return
	}
	facts, err := a.o.Host.Facts()
	if err != nil {
		a.o.Log.Warn().Err(err).Msg("cannot read this machine's addresses, those known before are used")
		a.later(retry, retryAfter(a.failures))
		a.failures++
		if a.own.ListenPort == 0 {
			return
		}
	}
	snapshot, problems := a.store.Snapshot()
	problems = append(problems, snapshot.Settings.overruled(a.o.Settings, a.o.Node)...)
	plan, found := a.settle(snapshot, facts)
	problems = append(problems, found...)
	problems = append(problems, a.misplaced(snapshot, facts)...)
	if !a.publishedAt.IsZero() {
		a.rival.watch(a.published.PublicKey, a.own.PublicKey, time.Now())
	}
	if a.rival.there(time.Now()) {
		problems = append(problems, a.rivalProblem())
	}
	if n := a.unpublished.Load(); n > 0 {
		problems = append(problems, Problem{
			Subject{Kind: KindNode, Name: a.o.Node}, "status", "", Unpublished,
			"could not be published, so that the others do not hear of what changed here", "see the log for why; it is tried again",
		})
	}
	var done Done
	plan.Host.Partial = !a.store.Synced()
	if plan.Self != "" {
		done, err = a.enact(ctx, plan)
		problems = append(problems, done.Problems...)
	}
	if err != nil {
		problems = append(problems, Problem{
			Subject{Kind: KindHost}, "", "", HostConflict,
			"not all of the plan could be carried out: " + strings.ReplaceAll(err.Error(), "\n", "; "), "see what stands in the way, it is tried again",
		})
	}
	a.announce(plan)
	a.explain(done, err)
	a.reportProblems(problems)
	a.tell(a.makeStatus(plan, problems))
	if err == nil {
		a.failures = 0
	} else if ctx.Err() == nil {
		a.later(retry, retryAfter(a.failures))
		a.failures++
	}
}

// misplaced finds internal IPs that an administrator gives this node and that it does not have.
func (a *Agent) misplaced(s Snapshot, facts HostFacts) (problems []Problem) {
	for _, n := range s.Nodes {
		if n.Name != a.o.Node {
			continue
		}
		for _, ip := range n.Spec.InternalIPs {
			if !slices.Contains(facts.InternalIPs, ip) {
				problems = append(problems, Problem{
					n.subject(), "spec.internalIPs", ip.String(), HostConflict,
					"is on no link of this machine, so that its neighbours do not reach it", "give the machine the address, or the node one that it has",
				})
			}
		}
	}
	return problems
}

// informed reports whether every source has spoken, or spoke when the agent ran last.
func (a *Agent) informed() bool { return a.kept || a.store.Heard() >= len(a.o.Sources) }

// settle plans until what the node claims is what the plan says that it should.
func (a *Agent) settle(s Snapshot, facts HostFacts) (plan Plan, problems []Problem) {
	for round := range settleRounds {
		world := a.world(s, facts, round == 0)
		plan, problems = MakePlan(world, a.o.Node, a.o.Plan)
		if plan.Self == "" || slices.Equal(plan.Publish.MeshAddresses, a.own.MeshAddresses) && plan.Publish.Leads == a.own.Leads {
			break
		}
		a.own.MeshAddresses, a.own.Leads = plan.Publish.MeshAddresses, plan.Publish.Leads
	}
	return plan, problems
}

// Done is what a pass did.
type Done struct {
	Device   []device.Change
	Host     []HostChange
	Problems []Problem
}

// enact adds to the device, then makes the machine equal to the plan, then takes away from the
// device, so that every address has a way at every moment. A step that fails does not keep the
// others from being taken.
func (a *Agent) enact(ctx context.Context, plan Plan) (done Done, err error) {
	want := plan.Device
	want.PrivateKey, want.FwMark = a.o.Key, a.o.FwMark
	changes, errAdd := a.o.Device.Apply(ctx, keepUntilRouted(a.applied, want))
	done.Device = changes
	var errHost, errTake error
	done.Host, done.Problems, errHost = a.o.Host.Apply(ctx, plan.Host)
	if errAdd == nil {
		changes, errTake = a.o.Device.Apply(ctx, want)
		done.Device = append(done.Device, changes...)
	}
	if errAdd == nil && errTake == nil {
		a.applied = want
	}
	if a.prober != nil {
		a.prober.set(plan)
	}
	return done, errors.Join(errAdd, errHost, errTake)
}

// keepUntilRouted is the wanted config and, beside it, what the one before has and nobody else
// is to have now: routes still lead there.
func keepUntilRouted(before, want device.Config) device.Config {
	owned := make(map[netip.Prefix]bool)
	index := make(map[device.PublicKey]int, len(want.Peers))
	for i, p := range want.Peers {
		index[p.PublicKey] = i
		for _, a := range p.AllowedIPs {
			owned[a] = true
		}
	}
	peers := slices.Clone(want.Peers)
	for _, p := range before.Peers {
		left := slices.DeleteFunc(slices.Clone(p.AllowedIPs), func(a netip.Prefix) bool { return owned[a] })
		i, stays := index[p.PublicKey]
		switch {
		case stays && len(left) > 0:
			peers[i].AllowedIPs = slices.Concat(peers[i].AllowedIPs, left)
		case !stays && p.PublicKey != want.PrivateKey.Public():
			p.AllowedIPs = left
			peers = append(peers, p)
		}
	}
	want.Peers = peers
	return want
}
