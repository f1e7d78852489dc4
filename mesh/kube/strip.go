package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// Of a thousand nodes only what is read is kept: a Node alone has images, conditions and fields
// that others manage, of 10 kB and more.

// stripMeta keeps what tells objects apart.
func stripMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, Generation: m.Generation,
	}
}

// stripNode keeps of the labels and annotations those that are asked for.
func stripNode(labels, annotations func(name string) bool) func(any) (any, error) {
	keep := func(all map[string]string, want func(string) bool) map[string]string {
		kept := maps.Clone(all)
		maps.DeleteFunc(kept, func(name, _ string) bool { return !want(name) })
		return kept
	}
	return func(o any) (any, error) {
		n, ok := o.(*corev1.Node)
		if !ok {
			return o, nil
		}
		out := &corev1.Node{ObjectMeta: stripMeta(n.ObjectMeta)}
		out.Labels, out.Annotations = keep(n.Labels, labels), keep(n.Annotations, annotations)
		out.Spec.PodCIDR, out.Spec.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				out.Status.Addresses = append(out.Status.Addresses, a)
			}
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
			}
		}
		return out, nil
	}
}

func stripMeshNode(o any) (any, error) {
	if n, ok := o.(*v1alpha1.MeshNode); ok {
		return &v1alpha1.MeshNode{ObjectMeta: stripMeta(n.ObjectMeta), Spec: n.Spec, Status: n.Status}, nil
	}
	return o, nil
}

func stripPeer(o any) (any, error) {
	if p, ok := o.(*v1alpha1.Peer); ok {
		return &v1alpha1.Peer{ObjectMeta: stripMeta(p.ObjectMeta), Spec: p.Spec, Status: p.Status}, nil
	}
	return o, nil
}

func stripSecret(o any) (any, error) {
	if s, ok := o.(*corev1.Secret); ok {
		return &corev1.Secret{ObjectMeta: stripMeta(s.ObjectMeta), Data: s.Data}, nil
	}
	return o, nil
}

func stripConfigMap(o any) (any, error) {
	if c, ok := o.(*corev1.ConfigMap); ok {
		return &corev1.ConfigMap{ObjectMeta: stripMeta(c.ObjectMeta), Data: c.Data}, nil
	}
	return o, nil
}
