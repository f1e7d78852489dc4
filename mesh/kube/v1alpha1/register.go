package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The group and version of the objects, and what they are called in paths.
const (
	Group     = "stillwire.dev"
	Version   = "v1alpha1"
	MeshNodes = "meshnodes"
	Peers     = "peers"
)

// GroupVersion of the objects.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// AddToScheme makes the objects known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &MeshNode{}, &MeshNodeList{}, &Peer{}, &PeerList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
