// Package kilo speaks Kilo's language, so that a cluster can move from Kilo node by node: what its
// annotations and Peer objects say, what its agents make of them, and what they write.
//
// Kilo's agents do not tell each other addresses or leaders. Each computes all of them from the
// same objects, so that in a mixed cluster ours must come to the same sums, with all that is odd
// about them:
//
//	objects ── ReadNode, ReadPeer ──> Node, Peer, problems ── Sum ──> Mesh ── Device ──> peers
//	                                                                  Own.Annotations ──> objects
//
// What Kilo passes over in silence is read as Kilo does, and named as a mesh.Problem.
//
// All is pure: no clock, no I/O, no Kubernetes. The tests hold it to what Kilo itself made of 120
// random clusters.
package kilo
