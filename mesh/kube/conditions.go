package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// The types of conditions.
const (
	conditionReady    = "Ready"           // of a MeshNode: its agent is a member, and nothing of its own is wrong
	conditionPolicy   = "AdmissionPolicy" // of a MeshNode: the cluster keeps agents from the objects of others
	conditionAccepted = "Accepted"        // of a Peer: all of its spec is obeyed
	conditionUp       = "Up"              // of a Peer: it speaks to the node that says so
)

// reasonFine is why a condition is as it should be.
const reasonFine = "AsPlanned"

// maxMessage is how long the text of a condition may be here, in bytes. The API server takes more.
const maxMessage = 4096

// condition says whether something is so. A reason of problems is used as it is.
func condition(kind string, ok bool, reason, message string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: cut(message, maxMessage), ObservedGeneration: generation}
	if ok {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// verdict is the condition that the problems of one object make: the first one names the reason.
func verdict(kind string, problems []mesh.Problem, generation int64) metav1.Condition {
	if len(problems) == 0 {
		return condition(kind, true, reasonFine, "", generation)
	}
	var text string
	for i, p := range problems {
		if i > 0 {
			text += "; "
		}
		text += p.String()
	}
	return condition(kind, false, string(problems[0].Reason), text, generation)
}

// merge is the conditions with those that are wanted, and whether that changes any. When a condition
// came to be is kept until its status changes.
func merge(have, want []metav1.Condition) (merged []metav1.Condition, changed bool) {
	merged = slices.Clone(have)
	for _, c := range want {
		c.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
		changed = meta.SetStatusCondition(&merged, c) || changed
	}
	return merged, changed
}

// conditionManager owns conditions: another than who owns the rest of a status, as they are written
// at other times.
const conditionManager = "stillwire-conditions"

// describeNode writes the conditions of the own MeshNode if they changed.
func (r *Reporter) describeNode(ctx context.Context, s *mesh.Status) error {
	o, ok := r.source.meshNode(s.Node)
	if !ok {
		return nil // published first
	}
	own := about(s.Problems, mesh.KindNode, s.Node)
	ready := verdict(conditionReady, slices.Concat(own, about(s.Problems, mesh.KindHost, "")), o.Generation)
	if s.Plan.Self == "" && len(own) == 0 {
		ready = condition(conditionReady, false, string(mesh.NoMember), "the agent has no plan yet", o.Generation)
	}
	want := []metav1.Condition{ready}
	if r.policy != nil {
		want = append(want, *r.policy)
	}
	conditions, changed := merge(o.Status.Conditions, want)
	if !changed {
		return nil
	}
	return applyStatus(ctx, r.client.meshNodes, "MeshNode", s.Node, conditionManager, map[string]any{"conditions": conditions})
}

// describePeers writes the conditions of Peers that changed and that this node is to write.
func (r *Reporter) describePeers(ctx context.Context, s *mesh.Status, speaks bool) error {
	for _, o := range r.source.allPeers() {
		var want []metav1.Condition
		if speaks {
			want = append(want, verdict(conditionAccepted, about(s.Problems, mesh.KindPeer, o.Name), o.Generation))
		}
		up, mine := r.peerUp(s, o, speaks)
		if mine {
			want = append(want, up)
		}
		conditions, changed := merge(o.Status.Conditions, want)
		if !changed {
			continue
		}
		status := v1alpha1.PeerStatus{Node: o.Status.Node, Conditions: conditions}
		if mine {
			status.Node = s.Node
		}
		if err := applyStatus(ctx, r.client.peers, "Peer", o.Name, conditionManager, status); err != nil {
			return err
		}
	}
	return nil
}

// peerUp is whether the peer speaks, and whether this node is who says so: who sees its packets
// while nobody else says that it does, or who said so last. Where nobody ever did, or who did is no
// node any more, the speaker says that it does not.
func (r *Reporter) peerUp(s *mesh.Status, o *v1alpha1.Peer, speaks bool) (metav1.Condition, bool) {
	i := slices.IndexFunc(s.Peers, func(p mesh.PeerStatus) bool { return p.Name == o.Name && p.Key.String() == o.Spec.PublicKey })
	alive := i >= 0 && s.Peers[i].Alive
	said := meta.FindStatusCondition(o.Status.Conditions, conditionUp)
	if said != nil && !r.source.hasAgent(o.Status.Node) {
		said = nil
	}
	switch {
	case alive && (said == nil || said.Status != metav1.ConditionTrue || o.Status.Node == s.Node):
		return condition(conditionUp, true, "Speaks", fmt.Sprintf("node %s hears it", s.Node), o.Generation), true
	case alive:
		return metav1.Condition{}, false
	case said != nil && o.Status.Node == s.Node, said == nil && speaks:
		return condition(conditionUp, false, "Silent", "no node has heard it for three minutes", o.Generation), true
	}
	return metav1.Condition{}, false
}

func about(problems []mesh.Problem, kind mesh.Kind, name string) (list []mesh.Problem) {
	for _, p := range problems {
		if p.Subject.Kind == kind && p.Subject.Name == name {
			list = append(list, p)
		}
	}
	return list
}
