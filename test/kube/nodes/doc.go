// Package nodes gives a cluster of package cluster real nodes, on one machine, for tests: each
// has network, mounts, host name, processes, IPC and cgroups of its own, and in them containerd,
// runc and the kubelet, which run real pods.
//
//	test process, in the network namespace of the fabric
//	  kube-apiserver, kubectl, ... at 10.200.0.1
//	                │ bridge fabric: carries frames between nodes, and forwards nothing
//	        ┌───────┴────────┐
//	   eth0 10.200.0.11   eth0 10.200.0.12
//	      node n1            node n2         containerd, kubelet
//	   cni0 10.42.0.1     cni0 10.42.1.1
//	      pods               pods            addresses from Node.spec.podCIDR
//
// Between the pods of two nodes there is no way: a packet that leaves a node with the address of
// a pod ends at the fabric. To make that way is what is tested. There is no DNS and no kube-proxy;
// the API server's service address is translated by one rule on each node.
//
// The test process is moved into the fabric by Enter, which TestMain calls first. All that is
// started is a child of the test process, and ends with it, however that ends; namespaces and
// mounts go with their last process. Cgroups and files do not: Stop removes them, and where a
// test was killed, the next Start.
//
// It needs root, cgroups of version 1, and the Debian packages containerd, runc and
// containernetworking-plugins. Methods may be called from any goroutine, but for those that start
// and stop something, which one at a time calls.
package nodes
