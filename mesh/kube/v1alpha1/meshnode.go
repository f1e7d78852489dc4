package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MeshNode is a machine that runs an agent and is a member of the mesh. It has the name of its Node,
// and belongs to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=mnode;mnodes,categories=stillwire
// +kubebuilder:printcolumn:name="Location",type=string,JSONPath=`.spec.location`
// +kubebuilder:printcolumn:name="Mesh address",type=string,JSONPath=`.status.meshAddresses[0]`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Endpoint",type=string,priority=1,JSONPath=`.status.endpoints[0]`
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Public key",type=string,priority=1,JSONPath=`.status.publicKey`
type MeshNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the administrator says of the node. Left out: nothing, all is found.
	// +optional
	Spec MeshNodeSpec `json:"spec,omitzero"`
	// Status is what the node's agent says of itself.
	// +optional
	Status MeshNodeStatus `json:"status,omitzero"`
}

// MeshNodeList is several of them.
//
// +kubebuilder:object:root=true
type MeshNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MeshNode `json:"items"`
}

// MeshNodeSpec is the administrator's.
type MeshNodeSpec struct {
	// Location of the node: nodes of one location reach each other without a tunnel. Left out:
	// that of the label topology.kubernetes.io/region of its Node.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Location *string `json:"location,omitempty"`
	// Leader prefers the node as the leader of its location, where nobody leads yet.
	// +optional
	Leader bool `json:"leader,omitempty"`
	// Endpoint where others reach the node: an IP address or DNS name and a port. Left out: found
	// by the node itself, or learnt from its packets.
	// +kubebuilder:validation:MaxLength=262
	// +kubebuilder:validation:XValidation:rule="self.matches('^(\\\\[[0-9a-fA-F:.]+\\\\]|[^:\\\\[\\\\]]+):[0-9]{1,5}$')",message="write host:port, such as 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// InternalIPs inside the location, best first; [none] says that there is none that others could
	// use, so that the node is a location alone. Left out: the InternalIP of its Node, or found.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(x, isIP(x)) || self == ['none']",message="write IP addresses, or none alone: [none]"
	// +listType=atomic
	// +optional
	InternalIPs []string `json:"internalIPs,omitempty"`
	// PersistentKeepalive is how often the node sends to all its peers, in seconds. 0: as needed
	// behind NAT.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	PersistentKeepalive int32 `json:"persistentKeepalive,omitempty"`
	// ExtraPrefixes are reached through the node, beside its pods.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(x, isCIDR(x) || isIP(x))",message="write CIDRs, such as 192.168.7.0/24 or fd00:7::/64"
	// +listType=atomic
	// +optional
	ExtraPrefixes []string `json:"extraPrefixes,omitempty"`
	// PodCIDRs are the addresses of its pods, in place of those of its Node: for a machine that is no
	// Node of the cluster, or whose pods get their addresses in another way.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(x, isCIDR(x))",message="write CIDRs, such as 10.42.3.0/24"
	// +listType=atomic
	// +optional
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ListenPort of the tunnels, UDP. 0: that of the endpoint, or 51820.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	ListenPort int32 `json:"listenPort,omitempty"`
	// MTU of packets inside the tunnels, in bytes. 0: found from the path.
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 576 && self <= 65455",message="write a number from 576 to 65455, or leave it out"
	// +optional
	MTU int32 `json:"mtu,omitempty"`
}

// MeshNodeStatus is the agent's. It holds no secret.
type MeshNodeStatus struct {
	// PublicKey of the node.
	// +kubebuilder:validation:MaxLength=44
	// +optional
	PublicKey string `json:"publicKey,omitempty"`
	// Mode is how it carries packets: tun or netstack.
	// +optional
	Mode string `json:"mode,omitempty"`
	// ListenPort is where its tunnels end.
	// +optional
	ListenPort int32 `json:"listenPort,omitempty"`
	// InternalIPs found on the machine, best first.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	InternalIPs []string `json:"internalIPs,omitempty"`
	// Endpoints are global addresses of the machine with the port, best first.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Endpoints []string `json:"endpoints,omitempty"`
	// MeshAddresses that the node has taken for itself, one of each family at most.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	MeshAddresses []string `json:"meshAddresses,omitempty"`
	// Learned is where packets of others really come from.
	// +kubebuilder:validation:MaxItems=4096
	// +listType=map
	// +listMapKey=publicKey
	// +optional
	Learned []LearnedEndpoint `json:"learned,omitempty"`
	// Leads is the term of its claim to lead its location. 0: it does not.
	// +optional
	Leads int64 `json:"leads,omitempty"`
	// Unreachable are nodes that do not answer this one inside the tunnel.
	// +kubebuilder:validation:MaxItems=10000
	// +listType=atomic
	// +optional
	Unreachable []string `json:"unreachable,omitempty"`
	// Conditions of the node: Ready, and AdmissionPolicy, which says whether the cluster keeps
	// agents from writing the objects of others.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LearnedEndpoint is where packets of one member come from.
type LearnedEndpoint struct {
	// PublicKey of the member.
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey"`
	// Endpoint is an IP address and a port.
	// +kubebuilder:validation:MaxLength=53
	Endpoint string `json:"endpoint"`
}
