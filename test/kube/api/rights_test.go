//go:build linux

package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

func ours(name string) schema.GroupVersionResource {
	return resource(v1alpha1.Group, v1alpha1.Version, name)
}

func object(apiVersion, kind, name string, more map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
	for k, v := range more {
		o.Object[k] = v
	}
	return o
}

func meshNode(name string, more map[string]any) *unstructured.Unstructured {
	return object(v1alpha1.GroupVersion().String(), "MeshNode", name, more)
}

// attempt is one write that an agent which was taken over may try.
type attempt struct {
	name string
	try  func(ctx context.Context, c dynamic.Interface) error
}

// An agent that was taken over writes no object of another node, nor any that is not an agent's, in
// any way that the API has. The same identity may write its own: that is the control.
func TestAnAgentWritesNothingOfOthers(t *testing.T) {
	const own, other = "rights-own", "rights-other"
	config := agentOf(t, shared, own)
	agentOf(t, shared, other)
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	shared.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: MeshNode\nmetadata: {name: %s}\nspec: {location: x}\n", v1alpha1.GroupVersion(), other),
		fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: rights}\nspec: {publicKey: %s, allowedIPs: [10.9.0.0/24]}\n", v1alpha1.GroupVersion(), goodKey))
	refused := 0
	for _, a := range slices.Concat(attemptsOnMeshNodes(own, other), attemptsElsewhere(own, other)) {
		if err := a.try(t.Context(), c); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want a refusal (403)", a.name, err)
			continue
		}
		refused++
	}
	t.Logf("%d attempts, %d refused", len(attemptsOnMeshNodes(own, other))+len(attemptsElsewhere(own, other)), refused)
	if refused < 40 {
		t.Errorf("%d attempts were refused, want 40 and more", refused)
	}
	nodes := c.Resource(ours("meshnodes"))
	if _, err := nodes.Create(t.Context(), meshNode(own, nil), metav1.CreateOptions{}); err != nil {
		t.Errorf("control: an agent makes its own MeshNode: %v", err)
	}
	status := []byte(`{"status":{"publicKey":"` + goodKey + `"}}`)
	if _, err := nodes.Patch(t.Context(), own, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("control: an agent writes its own status: %v", err)
	}
	if _, _, err := shared.Kubectl(t, "delete", "stillwire", "--all"); err != nil {
		t.Error(err)
	}
}

// attemptsOnMeshNodes are all verbs on the MeshNode of another, and what may not be in one's own.
func attemptsOnMeshNodes(own, other string) (list []attempt) {
	add := func(name string, try func(ctx context.Context, c dynamic.ResourceInterface) error) {
		list = append(list, attempt{name, func(ctx context.Context, c dynamic.Interface) error { return try(ctx, c.Resource(ours("meshnodes"))) }})
	}
	patches := map[types.PatchType]string{
		types.MergePatchType: `{"%s":%s}`,
		types.JSONPatchType:  `[{"op":"add","path":"/%s","value":%s}]`,
		types.ApplyPatchType: `{"apiVersion":"stillwire.dev/v1alpha1","kind":"MeshNode","metadata":{"name":"` + other + `"},"%s":%s}`,
	}
	for kind, text := range patches {
		for _, sub := range []string{"", "status", "scale"} {
			part, value := "spec", `{"location":"y"}`
			if sub == "status" {
				part, value = "status", `{"publicKey":"`+goodKey+`"}`
			}
			for _, dry := range [][]string{nil, {metav1.DryRunAll}} {
				add(fmt.Sprintf("patch %s of another, /%s, dry run %v", kind, sub, dry), func(ctx context.Context, c dynamic.ResourceInterface) error {
					subs := []string{sub}
					if sub == "" {
						subs = nil
					}
					force := true
					o := metav1.PatchOptions{DryRun: dry}
					if kind == types.ApplyPatchType {
						o.Force, o.FieldManager = &force, "taken-over"
					}
					_, err := c.Patch(ctx, other, kind, fmt.Appendf(nil, text, part, value), o, subs...)
					return err
				})
			}
		}
	}
	add("update another", func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.Update(ctx, meshNode(other, map[string]any{"spec": map[string]any{"location": "y"}}), metav1.UpdateOptions{})
		return err
	})
	add("update the status of another", func(ctx context.Context, c dynamic.ResourceInterface) error {
		_, err := c.UpdateStatus(ctx, meshNode(other, nil), metav1.UpdateOptions{})
		return err
	})
	for _, name := range []string{other, own} {
		add("delete "+name, func(ctx context.Context, c dynamic.ResourceInterface) error {
			return c.Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	add("delete all", func(ctx context.Context, c dynamic.ResourceInterface) error {
		return c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	for name, o := range map[string]*unstructured.Unstructured{
		"a third node's":       meshNode("rights-third", nil),
		"own, with a spec":     meshNode(own, map[string]any{"spec": map[string]any{"leader": true}}),
		"own, with labels":     meshNode(own, map[string]any{"metadata": map[string]any{"name": own, "labels": map[string]any{"a": "b"}}}),
		"own, with finalizers": meshNode(own, map[string]any{"metadata": map[string]any{"name": own, "finalizers": []any{"a.example/b"}}}),
		"own, of another's Node": meshNode(own, map[string]any{"metadata": map[string]any{"name": own, "ownerReferences": []any{
			map[string]any{"apiVersion": "v1", "kind": "Node", "name": other, "uid": "1"}}}}),
		"of any name": meshNode("", map[string]any{"metadata": map[string]any{"generateName": "rights-"}}),
	} {
		add("create "+name, func(ctx context.Context, c dynamic.ResourceInterface) error {
			_, err := c.Create(ctx, o, metav1.CreateOptions{})
			return err
		})
	}
	return list
}

// attemptsElsewhere are on objects that no agent writes.
func attemptsElsewhere(own, other string) (list []attempt) {
	add := func(name string, try func(ctx context.Context, c dynamic.Interface) error) {
		list = append(list, attempt{name, try})
	}
	merge := func(gvr schema.GroupVersionResource, namespace, name, patch string, subs ...string) {
		add(fmt.Sprintf("patch %s %s/%s", gvr.Resource, name, strings.Join(subs, "/")), func(ctx context.Context, c dynamic.Interface) error {
			_, err := c.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subs...)
			return err
		})
	}
	nodes, pods, secrets := resource("", "v1", "nodes"), resource("", "v1", "pods"), resource("", "v1", "secrets")
	for _, name := range []string{own, other} {
		merge(nodes, "", name, `{"metadata":{"annotations":{"a":"b"}}}`)
		merge(nodes, "", name, `{"spec":{"podCIDR":"10.0.0.0/8"}}`)
		merge(nodes, "", name, `{"status":{"addresses":[]}}`, "status")
	}
	merge(ours("peers"), "", "rights", `{"spec":{"allowedIPs":["0.0.0.0/0"]}}`)
	merge(resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", "peers.stillwire.dev", `{"spec":{}}`)
	merge(resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"), "", "stillwire-agents", `{"spec":{"failurePolicy":"Ignore"}}`)
	merge(resource("rbac.authorization.k8s.io", "v1", "clusterroles"), "", "stillwire-agent", `{"rules":[]}`)
	merge(resource("", "v1", "configmaps"), kube.DefaultNamespace, kube.SettingsName, `{"data":{"topology":"full"}}`)
	add("create a Peer", func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(ours("peers")).Create(ctx, object(v1alpha1.GroupVersion().String(), "Peer", "rights-new", map[string]any{
			"spec": map[string]any{"publicKey": goodKey, "allowedIPs": []any{"10.9.0.0/24"}}}), metav1.CreateOptions{})
		return err
	})
	add("delete a Peer", func(ctx context.Context, c dynamic.Interface) error {
		return c.Resource(ours("peers")).Delete(ctx, "rights", metav1.DeleteOptions{})
	})
	add("read secrets of the cluster", func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(secrets).List(ctx, metav1.ListOptions{})
		return err
	})
	add("read secrets of kube-system", func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(secrets).Namespace("kube-system").List(ctx, metav1.ListOptions{})
		return err
	})
	add("list pods", func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(pods).List(ctx, metav1.ListOptions{})
		return err
	})
	add("make a token", func(ctx context.Context, c dynamic.Interface) error {
		_, err := c.Resource(resource("", "v1", "serviceaccounts")).Namespace(kube.DefaultNamespace).Create(ctx,
			object("authentication.k8s.io/v1", "TokenRequest", "stillwire", nil), metav1.CreateOptions{}, "token")
		return err
	})
	return list
}

// A token that names no node, as of a service account outside of a pod, writes no MeshNode at all.
func TestATokenWithoutANodeWritesNothing(t *testing.T) {
	config, err := shared.ServiceAccountToken(t.Context(), kube.DefaultNamespace, "stillwire")
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resource(ours("meshnodes")).Create(t.Context(), meshNode("nobody", nil), metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "its token names no node") {
		t.Errorf("got %v", err)
	}
}

// The list of all that an agent may do, beside what everybody may who has a token.
func TestRightsAreTheseAndNoMore(t *testing.T) {
	var text strings.Builder
	for _, namespace := range []string{"kube-system", "default", kube.DefaultNamespace} {
		mine, err := rules(t.Context(), agentOf(t, shared, "rights-list"), namespace)
		if err != nil {
			t.Fatal(err)
		}
		stranger, err := shared.ServiceAccountToken(t.Context(), "rights", "stranger")
		if err != nil {
			t.Fatal(err)
		}
		everybody, err := rules(t.Context(), stranger, namespace)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "in the namespace %s:\n", namespace)
		for _, r := range mine {
			if !slices.Contains(everybody, r) {
				fmt.Fprintf(&text, "  %s\n", r)
			}
		}
	}
	want, err := os.ReadFile("testdata/rights.golden")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("the rights are\n%s\nand not as testdata/rights.golden has them:\n%s", text.String(), want)
	}
}

func rules(ctx context.Context, config *rest.Config, namespace string) (list []string, err error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	review, err := c.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	for _, r := range review.Status.ResourceRules {
		slices.Sort(r.Verbs)
		line := fmt.Sprintf("%s %s of %q", strings.Join(r.Verbs, ","), strings.Join(r.Resources, ","), strings.Join(r.APIGroups, ","))
		if len(r.ResourceNames) > 0 {
			line += " named " + strings.Join(r.ResourceNames, ",")
		}
		list = append(list, line)
	}
	for _, r := range review.Status.NonResourceRules {
		list = append(list, fmt.Sprintf("%s %s", strings.Join(r.Verbs, ","), strings.Join(r.NonResourceURLs, ",")))
	}
	slices.Sort(list)
	return list, nil
}
