// Package kube is the source of facts that is a Kubernetes cluster, and the publisher and reporter
// of a node in it.
//
//	Nodes, MeshNodes, Peers, Secrets ──watch──> Source ──Update──> mesh.Agent
//	own MeshNode  <──create, patch status──  Publisher  <──NodeStatus──┤
//	Events, conditions  <──────────────────  Reporter   <──*Status─────┘
//
// A MeshNode is a member; its Node, which has the same name, gives what the cluster knows of the
// machine: pod CIDRs, labels, InternalIP, readiness. A machine that is no Node of the cluster is a
// MeshNode without one. What cannot be obeyed is a mesh.Problem and hurts no more than it must: a
// field is left out, then an entry of a list, then the object.
//
// # What is believed
//
// Absence counts once all kinds have been listed. Many that vanish at once are asked for once more,
// from etcd and not from a cache, before they are believed. A cluster that refuses, is down, or is
// another one than before (by the UID of the namespace kube-system) is Down, and its last facts are
// used. Watches that have gone half dead are found by the pings of HTTP/2 within a minute.
//
// # What is written
//
// The agent's own MeshNode, when there is none, and the status of it, when it differs. Conditions of
// a Peer are written by one agent: that which sees its packets. Problems about a node are told by
// that node, all others by the oldest node that is ready, so that a thousand agents do not tell one
// thing a thousand times. Nothing is written by a timer alone.
//
// A Source, a Publisher and a Reporter have one goroutine each, that of Run or of the caller.
package kube
