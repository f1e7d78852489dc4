// Package netns gives tests a machine of their own: network namespaces with links, real
// TUNs, NAT and processes in them, and instruments that count what crosses them packet by
// packet. It is for tests alone and for Linux alone.
//
//	lab := netns.NewLab(t)
//	near, far := lab.Namespace("near"), lab.Namespace("far")
//	lab.Connect(near, far)
//	near.AddAddrs("far", "192.0.2.1/24")
//
// Nothing is made in the namespace of the test process, and everything is gone when the test
// ends, whatever its end. All methods may be called from any goroutine; those that end the
// test with a message from the test's own alone.
package netns
