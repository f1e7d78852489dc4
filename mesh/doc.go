// Package mesh decides who is peered with whom, and keeps a machine equal to that decision.
//
//	sources --Update--> Store --Snapshot--> MakePlan --> Plan, []Problem
//	                      ^                                |
//	                   Watch: "look again"          Agent: Device, Host, Publisher
//
// MakePlan is pure: it knows no clock, no network, no interface. Everything else in the package
// goes on in the one goroutine of Agent.Run, and what others may read is published as a *Status
// that never changes. Facts, plans and problems are values; who holds one must not change what
// it points to.
//
// The package never touches the operating system, Kubernetes or a TCP/IP stack: mesh/host,
// mesh/file and mesh/kube do, and meet the interfaces that are declared here.
package mesh
