// Package agents tests agents in network namespaces that hear of each other from a real API server,
// with the rights that are shipped. Each reaches it by a Wire, which can be cut, frozen or refused.
package agents
