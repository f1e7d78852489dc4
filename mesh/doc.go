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
// # Who has a tunnel with whom
//
//	full       a ─── b      every pair of nodes
//	           │  ╳  │
//	           c ─── d
//
//	cross      a ═ b        every pair of nodes of different locations; within one (═) packets
//	           │ ╳ │        travel as Settings.Inside says
//	           c ═ d
//
//	location   a ═ b        one pair for two locations: their leaders (a, c)
//	           │
//	           c ═ d
//
// A node without an internal IP, or in netstack mode, is a location of its own. Outside peers have
// a tunnel with every node, in the location topology with every leader.
//
// # What nodes claim
//
// Mesh addresses and leadership are held by saying so (NodeStatus), and nobody hands them out. An
// address is proposed by a hash of the key; of two that claim one, the older keeps it and the
// other takes the next. A leader has a term:
//
//	        nobody leads, or the leader does not answer
//	idle ──────────────────────────────────────────────► claims, with a term above all others
//	  ▲                                                        │
//	  └────────────── sees a later claim ──────────────────────┘
//
// Until another claims, everybody goes on by the old leader. Packets of a new one are refused by
// those who have not heard of it yet: the gap is as long as the facts take to travel. Who cannot
// hear facts at all, and took itself for the leader, is told by the new one in an answer to its probe.
//
// # Pods and the machines of other nodes
//
// The address that a tunnel ends at cannot be routed into the tunnel. What pods send there is, by
// HostPlan.Forwarded, as the answer comes that way in any case; what the machine itself sends is not.
//
// # What is believed
//
// Absence counts only in an update that is synced, and many absences at once only when they are
// confirmed (Store). Nothing ages out by the clock, and no time of another machine is compared
// with ours. Of two objects that claim one thing the one that was created first keeps it, nodes
// before peers, pods before all else.
//
// The package never touches the operating system, Kubernetes or a TCP/IP stack: mesh/host,
// mesh/file and mesh/kube do, and meet the interfaces that are declared here.
package mesh
