package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
	"github.com/stillwire/stillwire/mesh/scan"
)

// DefaultLocationLabel is the label of a Node that says where it is.
const DefaultLocationLabel = corev1.LabelTopologyRegion

// none in the place of internal IPs says that there is none.
const none = "none"

// readNode makes one fact of a MeshNode and its Node, which may be nil.
func readNode(o *v1alpha1.MeshNode, of *corev1.Node, label string) (mesh.Node, []mesh.Problem) {
	r := &reading{subject: mesh.Subject{Kind: mesh.KindNode, Name: o.Name, Source: "meshnode/" + o.Name}}
	n := mesh.Node{Identity: identity("meshnode", &o.ObjectMeta)}
	n.Spec = r.nodeSpec(&o.Spec)
	n.Status = r.nodeStatus(&o.Status)
	if of != nil {
		r.clusterNode(&n, of)
		if o.Spec.Location == nil {
			n.Spec.Location = one(r, "metadata.labels["+label+"]", of.Labels[label], scan.Words)
		}
	}
	if len(o.Spec.PodCIDRs) > 0 {
		n.PodCIDRs = many(r, "spec.podCIDRs", o.Spec.PodCIDRs, scan.Prefix)
	}
	return n, r.problems
}

func (r *reading) nodeSpec(o *v1alpha1.MeshNodeSpec) mesh.NodeSpec {
	s := mesh.NodeSpec{
		Leader:              o.Leader,
		Endpoint:            one(r, "spec.endpoint", o.Endpoint, scan.Endpoint),
		PersistentKeepalive: number(r, "spec.persistentKeepalive", o.PersistentKeepalive, scan.Keepalive),
		ExtraPrefixes:       many(r, "spec.extraPrefixes", o.ExtraPrefixes, scan.Prefix),
		ListenPort:          number(r, "spec.listenPort", o.ListenPort, scan.Port),
		MTU:                 number(r, "spec.mtu", o.MTU, scan.MTU),
	}
	if o.Location != nil {
		s.Location = one(r, "spec.location", *o.Location, scan.Words)
	}
	if slices.Equal(o.InternalIPs, []string{none}) {
		s.NoInternalIP = true
	} else {
		s.InternalIPs = many(r, "spec.internalIPs", o.InternalIPs, scan.Addr)
	}
	return s
}

func (r *reading) nodeStatus(o *v1alpha1.MeshNodeStatus) mesh.NodeStatus {
	s := mesh.NodeStatus{
		Mode:          one(r, "status.mode", o.Mode, scan.Mode),
		ListenPort:    number(r, "status.listenPort", o.ListenPort, scan.Port),
		InternalIPs:   many(r, "status.internalIPs", o.InternalIPs, scan.Addr),
		Endpoints:     many(r, "status.endpoints", o.Endpoints, scan.AddrPort),
		MeshAddresses: many(r, "status.meshAddresses", o.MeshAddresses, scan.Addr),
		Unreachable:   many(r, "status.unreachable", o.Unreachable, scan.Name),
	}
	if o.Leads > 0 {
		s.Leads = uint64(o.Leads)
	}
	if o.PublicKey != "" {
		key, f := scan.PublicKey(o.PublicKey)
		if f != nil {
			r.report("status.publicKey", "", f, "the node goes on without it")
		}
		s.PublicKey = key
	}
	s.Learned = r.learned(o.Learned)
	return s
}

func (r *reading) learned(list []v1alpha1.LearnedEndpoint) map[device.PublicKey]netip.AddrPort {
	if len(list) == 0 {
		return nil
	}
	m := make(map[device.PublicKey]netip.AddrPort, len(list))
	for _, l := range list {
		key, f := scan.PublicKey(l.PublicKey)
		if f != nil {
			r.report("status.learned", "", f, "this entry is left out")
			continue
		}
		if at := one(r, "status.learned", l.Endpoint, scan.AddrPort); at.IsValid() {
			m[key] = at
		}
	}
	return m
}

// clusterNode takes in what the cluster knows of the machine.
func (r *reading) clusterNode(n *mesh.Node, of *corev1.Node) {
	cidrs := of.Spec.PodCIDRs
	if len(cidrs) == 0 && of.Spec.PodCIDR != "" {
		cidrs = []string{of.Spec.PodCIDR}
	}
	n.PodCIDRs = many(r, "node.spec.podCIDRs", cidrs, scan.Prefix)
	for _, a := range of.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				n.NodeIPs = append(n.NodeIPs, ip.Unmap())
			}
		}
	}
	n.NotReady = slices.ContainsFunc(of.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}
