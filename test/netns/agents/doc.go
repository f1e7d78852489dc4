// Package agents holds tests of whole meshes: one agent for each machine, a process in a network
// namespace of its own with a real TUN, routes and nftables, pods behind veths, and a router
// between the locations that counts every packet of the mesh that passes it in clear text.
//
// The agents share a directory of manifests, in the place of a cluster's API server.
package agents
