// Package agents tests agents in network namespaces that hear of each other from a real API server,
// with the rights that are shipped. Each reaches it by a wire of its own, which can be cut or frozen.
package agents
