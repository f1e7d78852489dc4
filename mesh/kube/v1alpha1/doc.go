// Package v1alpha1 is the objects of a mesh in Kubernetes, group stillwire.dev.
//
//	MeshNode   a member that runs an agent; spec is the administrator's, status the agent's
//	Peer       a member that runs no agent of ours
//
// Both are cluster-scoped. The custom resource definitions in deploy are made of the types here,
// and so are the deep copies: run make generate after a change.
//
// What the schema and its rules refuse is refused by the agent too, as it may meet objects that
// were there before a rule was.
//
// +kubebuilder:object:generate=true
// +groupName=stillwire.dev
package v1alpha1
