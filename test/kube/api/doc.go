// Package api tests what Stillwire asks of a Kubernetes API server, and what it tells it: the
// objects, the rights of the agents, the source of facts, Events and conditions. The API server is
// real and has the definitions, rights and policy that are shipped; agents have tokens such as a
// kubelet gives them.
package api
