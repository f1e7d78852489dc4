package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// manager is who owns the fields of a status that the agent writes.
const manager = "stillwire-agent"

// Publisher writes what a node says of itself, as a mesh.Publisher.
type Publisher struct {
	client *Client
	source *Source // to see what is there already; nil: the API server is asked
}

var _ mesh.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher. What the source has seen is not asked for again.
func NewPublisher(c *Client, s *Source) *Publisher { return &Publisher{client: c, source: s} }

// Publish makes the status of the node's MeshNode what is given, and makes the MeshNode where there
// is none. Fields that the agent once wrote and does not any more are taken away.
func (p *Publisher) Publish(ctx context.Context, node string, status mesh.NodeStatus) error {
	if !p.there(node) {
		if err := p.create(ctx, node); err != nil {
			return err
		}
	}
	err := p.apply(ctx, node, status)
	if apierrors.IsNotFound(err) { // it has just been removed
		if err = p.create(ctx, node); err == nil {
			err = p.apply(ctx, node, status)
		}
	}
	return err
}

func (p *Publisher) there(node string) bool {
	return p.source != nil && p.source.meshNodes.knows(node)
}

// create makes an empty MeshNode that goes with its Node.
func (p *Publisher) create(ctx context.Context, node string) error {
	o := &v1alpha1.MeshNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	of, err := p.client.nodes.Get(ctx, node, metav1.GetOptions{})
	switch {
	case err == nil:
		o.OwnerReferences = []metav1.OwnerReference{ownedBy(of)}
	case !apierrors.IsNotFound(err): // a machine that is no Node
		return fmt.Errorf("create meshnode %s: read its Node: %w", node, err)
	}
	if _, err := p.client.meshNodes.Create(ctx, o, metav1.CreateOptions{FieldManager: manager}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create meshnode %s: %w", node, err)
	}
	return nil
}

func ownedBy(n *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}
}

// apply writes the status by server-side apply, which leaves alone what others own in it.
func (p *Publisher) apply(ctx context.Context, node string, status mesh.NodeStatus) error {
	return applyStatus(ctx, p.client.meshNodes, "MeshNode", node, manager, statusOf(status))
}

// patcher is a client of one kind.
type patcher[T any] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (T, error)
}

func applyStatus[T any](ctx context.Context, c patcher[T], kind, name, manager string, status any) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": kind,
		"metadata": map[string]string{"name": name},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", kind, name, err)
	}
	force := true
	_, err = c.Patch(ctx, name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: manager, Force: &force}, "status")
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", kind, name, err)
	}
	return nil
}
