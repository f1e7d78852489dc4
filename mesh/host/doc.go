// Package host makes a Linux machine equal to a mesh.HostPlan, and touches only what differs.
//
// It owns on the machine, and nothing else:
//
//	link      one persistent TUN, stillwire0, and one for encapsulation, with their addresses
//	routes    those of protocol 107 in the tables 7107 to 7109
//	rules     those of protocol 107 with priorities 7106 to 7109, 32764 and 32765
//	nftables  the table "inet stillwire"
//	sysctls   those it had to change, remembered in a file of the state folder
//
//	packet ── rule 7106: fwmark 0x3054 lookup 7109           only from pods, to nodes
//	             192.0.2.2/32 dev stillwire0                   where the tunnels end
//	       ── rule 7107: not fwmark 0x3053 lookup 7107 suppress_prefixlength 0
//	             10.2.1.0/24 dev stillwire0                    the tunnel
//	             unreachable 10.2.1.0/24 metric 2147483647     beneath it, should the TUN be gone
//	       ── rule 7108: lookup main suppress_prefixlength 0   only with a default route
//	       ── rule 7109: not fwmark 0x3053 lookup 7107         in the tunnel: the LAN stays
//	       ── rules of others, if any
//	       ── rule 32764: not fwmark 0x3053 lookup main suppress_prefixlength 0
//	             10.2.0.0/24 dev cni0                          not ours: the node's own pods
//	       ── rule 32765: not fwmark 0x3053 lookup 7108
//	             unreachable 10.2.0.0/24                       should their link be down
//	       ── the main table, with its default route
//
// What is the node's own within a range of the mesh is thrown from table 7107 to the main one. It
// takes every route there but the default one, so that a packet for a pod whose link is gone, or
// is yet to come, is answered and does not leave in clear text.
//
// Packets cross the table "inet stillwire" so (firewall.go has the rules):
//
//	in     raw prerouting      spoofed sources, strangers to the mesh address, strangers' encapsulation
//	turn   after dstnat        what is for a node from pods is marked, so that both ways are one
//	cross  mangle forward      only local sources into the tunnel, TCP segments that fit
//	sent   raw output          outer packets are not tracked
//	out    mangle postrouting  the mesh leaves by the tunnel and by routes of the plan alone
//	nat    srcnat postrouting  pods to the world, with Options.Masquerade
//
// Everything is read back from the kernel before it is changed, and nothing is remembered but
// sysctls: what an agent left behind is adopted by the next one, or removed by Uninstall, also
// long after. A link or a table of our name that somebody else has made is named and left alone. The end of the process removes nothing, so that packets of the mesh wait for the
// next agent and never leave in clear text.
//
// What it cannot do: keep packets in between the boot of the machine and the first Apply, and see
// the policy of a FORWARD chain of xtables without nftables.
//
// Only netlink, nftables over netlink, /proc and /dev/net/tun are used. No process is started.
// A Host opens its sockets in the network namespace of the calling thread, call by call.
//
// All methods are called from one goroutine but for Run, which has one of its own.
package host
