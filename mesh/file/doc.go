// Package file is the source of facts that is a directory of manifests, and the publisher that
// writes a node's own status beside them.
//
//	DIR/*.yaml *.yml *.json   documents of kind MeshNode, Peer and Mesh, or a List of them
//	DIR/*.conf                wg-quick files: each [Peer] is an outside peer
//	DIR/status/NAME.yaml      what node NAME says of itself, written by that node alone
//
// The documents have the shape of the Kubernetes objects, so that a directory can be applied to
// a cluster as it is. Of a MeshNode the spec is the administrator's and the status is the
// node's:
//
//	apiVersion: stillwire.dev/v1alpha1
//	kind: MeshNode
//	metadata: {name: a}
//	spec:
//	  location: berlin
//	  leader: true                  # preferred as the leader of its location
//	  endpoint: 192.0.2.1:51820     # or a DNS name
//	  internalIPs: [10.0.0.1]       # left out: found by the node; [none]: it has none
//	  persistentKeepalive: 25       # seconds
//	  extraPrefixes: [192.168.7.0/24]
//	  podCIDRs: [10.42.0.0/24]      # in Kubernetes that of the Node
//	  nodeIPs: [10.0.0.1]           # of the internal IPs that the node finds, these go first
//	  listenPort: 51820
//	  mtu: 1420
//	---
//	apiVersion: stillwire.dev/v1alpha1
//	kind: Peer
//	metadata: {name: laptop}
//	spec:
//	  publicKey: yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM=
//	  presharedKeyFile: secrets/laptop.psk   # beside the manifest
//	  allowedIPs: [10.9.0.0/24]
//	  meshAddresses: [10.4.7.7]
//	  endpoint: laptop.example:51820
//	---
//	apiVersion: stillwire.dev/v1alpha1
//	kind: Mesh
//	metadata: {name: default}
//	spec:
//	  topology: location
//	  inside: vxlan
//	  subnets: [10.4.0.0/16]        # of mesh addresses
//	  clusterCIDRs: [10.42.0.0/16]  # of the pods of all nodes
//	  serviceCIDRs: [10.43.0.0/16]
//
// What cannot be obeyed is a mesh.Problem with file and line, and hurts no more than it must: an
// optional field is left out, then an entry of a list, then the object. The settings alone are
// taken whole or not at all, for half of them would be another mesh. A file that cannot be read
// to its end keeps what it said before; where nothing is known of before, the update is not
// Synced. What is missing is looked for twice before an update is Confirmed.
//
// A node that has a status and no manifest is a node, and younger than all that have one; where it
// is written down, the annotation stillwire.dev/undeclared says so. A status file is read up to
// 256 KiB, any other up to 16 MiB and a million values.
//
// A Source writes nothing but one status file of its own node, which never holds a secret.
// Problems and logs never show one either: a public key that cannot be read is not shown, for
// it may be a private one. A Source has one goroutine, that of Run; Publish may be called from
// another.
package file
