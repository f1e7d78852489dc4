package kube

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stillwire/stillwire/mesh/scan"
)

// PodCIDRs is who gives the pods of a node their addresses.
type PodCIDRs string

// Who that may be.
const (
	// OfNode is the controller manager: Node.spec.podCIDRs. So it is with flannel, kube-router, our own
	// bridge, and Cilium with ipam mode kubernetes.
	OfNode PodCIDRs = "node"
	// OfCilium is Cilium with ipam mode cluster-pool: CiliumNode.spec.ipam.podCIDRs.
	OfCilium PodCIDRs = "cilium"
	// OfCalico is Calico's IPAM, which gives a node blocks as it needs them: BlockAffinities.
	OfCalico PodCIDRs = "calico"
)

// podKind is the objects of another program that say which pods a node has.
type podKind struct {
	resource schema.GroupVersionResource
	read     func(o *unstructured.Unstructured) (node string, cidrs []string)
}

// podKinds are those that are understood. OfNode needs none.
func podKinds(p PodCIDRs) (podKind, error) {
	switch p {
	case "", OfNode:
		return podKind{}, nil
	case OfCilium:
		return podKind{schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}, readCilium}, nil
	case OfCalico:
		return podKind{schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "blockaffinities"}, readCalico}, nil
	}
	return podKind{}, fmt.Errorf("pod CIDRs of %q: %s", p, scan.Meant(string(p), []string{string(OfNode), string(OfCilium), string(OfCalico)}))
}

func readCilium(o *unstructured.Unstructured) (node string, cidrs []string) {
	cidrs, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "ipam", "podCIDRs") // of another type: none
	return o.GetName(), cidrs
}

// readCalico reads one block. One that is being given up is the node's until it is gone.
func readCalico(o *unstructured.Unstructured) (node string, cidrs []string) {
	text := func(field string) string {
		s, _, _ := unstructured.NestedString(o.Object, "spec", field) // of another type: none
		return s
	}
	if text("state") == "pending" || text("cidr") == "" {
		return "", nil
	}
	return text("node"), []string{text("cidr")}
}

// podsByNode is what the objects say now, sorted; nil where the Nodes themselves say it.
func (s *Source) podsByNode() map[string][]string {
	if s.pods == nil {
		return nil
	}
	m := make(map[string][]string)
	for _, o := range s.pods.informer.GetStore().List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			if node, cidrs := s.podKind.read(u); node != "" {
				m[node] = append(m[node], cidrs...)
			}
		}
	}
	for _, cidrs := range m {
		slices.Sort(cidrs)
	}
	return m
}

// stripOther keeps the spec alone.
func stripOther(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "spec": u.Object["spec"],
		"metadata": map[string]any{"name": u.GetName(), "uid": string(u.GetUID()), "resourceVersion": u.GetResourceVersion()},
	}}
	return out, nil
}
