package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// policyTest is the name of a MeshNode that no node has and nobody makes.
const policyTest = "stillwire-policy-test"

// testPolicy tries, by a dry run, to make a MeshNode that is not this node's: a cluster that lets it
// pass would also let an agent that was taken over write the keys of other nodes. The error is that
// of a test which said nothing.
func (c *Client) testPolicy(ctx context.Context, node string) (*metav1.Condition, error) {
	o := &v1alpha1.MeshNode{ObjectMeta: metav1.ObjectMeta{Name: policyTest}}
	_, err := c.meshNodes.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: manager})
	var found metav1.Condition
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		found = condition(conditionPolicy, false, "Missing", "this agent may write the objects of other nodes: apply the ValidatingAdmissionPolicy stillwire-agents and its binding", 0)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		found = condition(conditionPolicy, true, "Enforced", "", 0)
	default:
		return nil, fmt.Errorf("test the admission policy as node %s: %w", node, err)
	}
	return &found, nil
}
