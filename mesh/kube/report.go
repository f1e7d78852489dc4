package kube

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

const (
	// reportEvery is how often reports are written at most, and reportAgain how long after a failure.
	reportEvery = time.Second
	reportAgain = 10 * time.Second
)

// Reporter writes what an agent finds into the cluster: Events when a problem begins and when it
// ends, and conditions on the object at fault.
type Reporter struct {
	client *Client
	source *Source
	node   string
	log    zerolog.Logger
	newest chan *mesh.Status

	// What follows belongs to the goroutine of Run.
	policy *metav1.Condition // what the test of the admission policy found; nil: not yet
	begun  map[mesh.ID]mesh.Problem
}

// NewReporter returns the Reporter of a node that asks nobody before Run.
func NewReporter(c *Client, s *Source, node string, log zerolog.Logger) *Reporter {
	return &Reporter{
		client: c, source: s, node: node, log: log,
		newest: make(chan *mesh.Status, 1), begun: make(map[mesh.ID]mesh.Problem),
	}
}

// Report takes a status in the place of any that was not written yet. It never blocks, and is called
// from one goroutine: it is for mesh.AgentOptions.Report.
func (r *Reporter) Report(s *mesh.Status) {
	select {
	case <-r.newest:
	default:
	}
	r.newest <- s
}

// Run writes reports until ctx is done. What cannot be written is tried again: the log says so once.
func (r *Reporter) Run(ctx context.Context) {
	var status *mesh.Status
	timer := time.NewTimer(0)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case status = <-r.newest:
		case <-timer.C:
		}
		if status == nil || !r.source.synced() {
			timer.Reset(reportEvery)
			continue
		}
		err := r.write(ctx, status)
		if err != nil && ctx.Err() == nil {
			if !failing {
				r.log.Warn().Err(err).Msg("problems and conditions cannot be written to the cluster, it is tried again")
			}
			timer.Reset(reportAgain)
		}
		failing = err != nil
		r.rest(ctx)
	}
}

// rest keeps reports from following each other too fast.
func (r *Reporter) rest(ctx context.Context) {
	t := time.NewTimer(reportEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (r *Reporter) write(ctx context.Context, s *mesh.Status) error {
	var errs []error
	if r.policy == nil {
		policy, err := r.client.testPolicy(ctx, r.node)
		r.policy = policy
		errs = append(errs, err)
	}
	speaks := r.speaks(s)
	errs = append(errs, r.tellProblems(ctx, s, speaks), r.describeNode(ctx, s), r.describePeers(ctx, s, speaks))
	return errors.Join(errs...)
}

// speaks reports whether this node is the one that tells what concerns all: the oldest that the
// cluster calls ready and that answers this one.
func (r *Reporter) speaks(s *mesh.Status) bool {
	silent := make(map[string]bool)
	for _, m := range s.Members {
		silent[m.Name] = m.Verdict == mesh.NoReply || m.Verdict == mesh.HandshakeStale
	}
	var first *mesh.Node
	for _, n := range r.source.members() {
		if !n.NotReady && !n.Status.PublicKey.IsZero() && !silent[n.Name] && (first == nil || n.Older(first.Identity)) {
			first = &n
		}
	}
	return first != nil && first.Name == r.node
}

// tells reports whether a problem is this node's to tell.
func (r *Reporter) tells(p mesh.Problem, speaks bool) bool {
	switch p.Subject.Kind {
	case mesh.KindHost:
		return true
	case mesh.KindNode:
		return p.Subject.Name == r.node || speaks && !r.source.hasAgent(p.Subject.Name)
	}
	return speaks
}

// tellProblems makes an Event of each problem that began or ended.
func (r *Reporter) tellProblems(ctx context.Context, s *mesh.Status, speaks bool) error {
	now := make(map[mesh.ID]mesh.Problem)
	for _, p := range s.Problems {
		if r.tells(p, speaks) {
			now[p.ID()] = p
		}
	}
	for id, p := range now {
		if _, known := r.begun[id]; known {
			continue
		}
		if err := r.event(ctx, p, corev1.EventTypeWarning, p.String()); err != nil {
			return err
		}
		r.begun[id] = p
	}
	for id, p := range r.begun {
		if _, lasts := now[id]; lasts {
			continue
		}
		// One that this node does not tell any more may last, and then is told by another.
		if !slices.ContainsFunc(s.Problems, func(q mesh.Problem) bool { return q.ID() == id }) {
			if err := r.event(ctx, p, corev1.EventTypeNormal, "no longer so: "+p.String()); err != nil {
				return err
			}
		}
		delete(r.begun, id)
	}
	return nil
}

// The readers of a Source for the Reporter, from its goroutine.

func (s *Source) meshNode(name string) (*v1alpha1.MeshNode, bool) {
	found, ok, err := s.meshNodes.informer.GetStore().GetByKey(name)
	if !ok || err != nil {
		return nil, false
	}
	o, ok := found.(*v1alpha1.MeshNode)
	return o, ok
}

// hasAgent reports whether the node's agent has ever spoken.
func (s *Source) hasAgent(node string) bool {
	o, ok := s.meshNode(node)
	return ok && o.Status.PublicKey != ""
}

func (s *Source) allPeers() (list []*v1alpha1.Peer) {
	for _, o := range s.peers.informer.GetStore().List() {
		if p, ok := o.(*v1alpha1.Peer); ok {
			list = append(list, p)
		}
	}
	return list
}

func (s *Source) members() (list []mesh.Node) {
	for _, o := range s.meshNodes.informer.GetStore().List() {
		if o, ok := o.(*v1alpha1.MeshNode); ok {
			n, _ := readNode(o, s.nodeOf(o.Name), s.label)
			list = append(list, n)
		}
	}
	return list
}
