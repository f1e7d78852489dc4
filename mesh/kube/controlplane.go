package kube

import (
	"net/netip"
	"net/url"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the Service by which pods reach the API server, in the namespace default, and the
// EndpointSlice that the API servers keep for it.
const apiService = "kubernetes"

func onlyAPIService(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + apiService }

// ControlPlane are the addresses of the API servers, as far as they are known: that of the
// configuration, and those behind the Service kubernetes, also those of the run before. It may be
// called from any goroutine, and is for mesh.AgentOptions.
func (s *Source) ControlPlane() []netip.Addr {
	list := s.guard.addresses()
	if a, ok := hostAddr(s.client.host); ok {
		list = append(list, a)
	}
	for _, o := range s.endpoints.informer.GetStore().List() {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			list = append(list, sliceAddrs(slice)...)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// hostAddr is the address of a host such as https://10.0.0.1:6443, when it is no name.
func hostAddr(host string) (netip.Addr, bool) {
	u, err := url.Parse(host)
	if err != nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return a.Unmap(), err == nil
}

func sliceAddrs(s *discoveryv1.EndpointSlice) (list []netip.Addr) {
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				list = append(list, a.Unmap())
			}
		}
	}
	return list
}

func stripSlice(o any) (any, error) {
	if s, ok := o.(*discoveryv1.EndpointSlice); ok {
		return &discoveryv1.EndpointSlice{ObjectMeta: stripMeta(s.ObjectMeta), AddressType: s.AddressType, Endpoints: s.Endpoints}, nil
	}
	return o, nil
}

// keepAddresses keeps where the API servers are for a start without them.
func (s *Source) keepAddresses() {
	var list []netip.Addr
	for _, o := range s.endpoints.informer.GetStore().List() {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			list = append(list, sliceAddrs(slice)...)
		}
	}
	if err := s.guard.keepAddresses(list); err != nil {
		s.log.Warn().Err(err).Msg("where the API servers are could not be kept for a restart")
	}
}
