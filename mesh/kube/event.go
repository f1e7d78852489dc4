package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// maxNote is how long the text of an Event may be, in bytes.
const maxNote = 1024

// event writes one. Those about objects of no namespace stand in the namespace default.
func (r *Reporter) event(ctx context.Context, p mesh.Problem, kind, note string) error {
	now := time.Now()
	about := r.regarding(p.Subject)
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, r.node, now.UnixNano(), p.ID()) // never fails
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", about.Name, hash.Sum64()), Namespace: metav1.NamespaceDefault},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: v1alpha1.Group + "/agent",
		ReportingInstance:   r.node,
		Action:              "Plan",
		Reason:              string(p.Reason),
		Regarding:           about,
		Note:                cut(note, maxNote),
		Type:                kind,
	}
	if _, err := r.client.events.Create(ctx, e, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write an Event about %s: %w", p.Subject, err)
	}
	return nil
}

// regarding is the object that a problem is about; this node where it is none of the cluster's.
func (r *Reporter) regarding(s mesh.Subject) corev1.ObjectReference {
	ref := corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: "MeshNode", Name: r.node}
	switch s.Kind {
	case mesh.KindNode:
		ref.Name = s.Name
	case mesh.KindPeer:
		ref.Kind, ref.Name = "Peer", s.Name
		for _, p := range r.source.allPeers() {
			if p.Name == s.Name {
				ref.UID = p.UID
			}
		}
		return ref
	}
	if o, ok := r.source.meshNode(ref.Name); ok {
		ref.UID = o.UID
	}
	return ref
}

// cut shortens a text to a number of bytes, without breaking a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most - len("…")
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
