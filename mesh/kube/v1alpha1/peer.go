package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Peer is a member of the mesh that runs no agent of ours: a laptop, a phone, another network.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=swpeer;swpeers,categories=stillwire
// +kubebuilder:printcolumn:name="Up",type=string,JSONPath=`.status.conditions[?(@.type=="Up")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Allowed IPs",type=string,JSONPath=`.spec.allowedIPs`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Mesh address",type=string,priority=1,JSONPath=`.spec.meshAddresses[0]`
// +kubebuilder:printcolumn:name="Endpoint",type=string,priority=1,JSONPath=`.spec.endpoint`
// +kubebuilder:printcolumn:name="Public key",type=string,priority=1,JSONPath=`.spec.publicKey`
type Peer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              PeerSpec `json:"spec"`
	// +optional
	Status PeerStatus `json:"status,omitzero"`
}

// PeerList is several of them.
//
// +kubebuilder:object:root=true
type PeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peer `json:"items"`
}

// PeerSpec is the administrator's.
//
// +kubebuilder:validation:XValidation:rule="size(self.allowedIPs) + size(self.meshAddresses) > 0",message="write meshAddresses, allowedIPs or both: a peer with neither could send nothing"
type PeerSpec struct {
	// PublicKey of the peer: the 44 characters that wg pubkey prints.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$')",message="write the 44 characters that wg pubkey prints on the peer's machine"
	// +kubebuilder:validation:XValidation:rule="self != 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='",message="all zero is no key: write the 44 characters that wg pubkey prints on the peer's machine"
	PublicKey string `json:"publicKey"`
	// AllowedIPs are the addresses behind the peer, which nobody else of the mesh has.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(x, isCIDR(x) || isIP(x))",message="write CIDRs, such as 10.9.0.0/24 or fd00:9::/64"
	// +kubebuilder:validation:XValidation:rule="self.all(x, !isCIDR(x) || !cidr(x).ip().isLoopback() && !cidr(x).ip().isLinkLocalUnicast() && !cidr(x).ip().isLinkLocalMulticast())",message="loopback and link-local addresses cannot be in a tunnel: leave them out"
	// +kubebuilder:default={}
	// +listType=atomic
	// +optional
	AllowedIPs []string `json:"allowedIPs,omitempty"`
	// MeshAddresses are addresses of the mesh's own subnets that are the peer's.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self.all(x, isIP(x))",message="write IP addresses without a length, such as 10.4.7.7"
	// +kubebuilder:default={}
	// +listType=atomic
	// +optional
	MeshAddresses []string `json:"meshAddresses,omitempty"`
	// Endpoint where the peer is reached: an IP address or DNS name and a port. Left out: the peer
	// speaks first.
	// +kubebuilder:validation:MaxLength=262
	// +kubebuilder:validation:XValidation:rule="self.matches('^(\\\\[[0-9a-fA-F:.]+\\\\]|[^:\\\\[\\\\]]+):[0-9]{1,5}$')",message="write host:port, such as 192.0.2.1:51820, [2001:db8::1]:51820 or name.example:51820"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// PersistentKeepalive is how often nodes send to the peer, in seconds. 0: never.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	PersistentKeepalive int32 `json:"persistentKeepalive,omitempty"`
	// PresharedKey is a key of a Secret in the namespace of the agents. Left out: none.
	// +optional
	PresharedKey *SecretKey `json:"presharedKey,omitempty"`
}

// SecretKey is one value of a Secret in the namespace of the agents. The Secret has the label
// stillwire.dev/preshared-keys: agents see no other.
type SecretKey struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in its data. Left out: presharedKey.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=presharedKey
	// +optional
	Key string `json:"key,omitempty"`
}

// PeerStatus is what one agent, the same for all, says of the peer.
type PeerStatus struct {
	// Node is the name of the node that wrote the status.
	// +optional
	Node string `json:"node,omitempty"`
	// Conditions: Accepted, whether all of the spec is obeyed; Up, whether the peer has spoken to
	// the node within three minutes.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
