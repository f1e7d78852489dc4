// Package interop has tests alone: Stillwire's device and netstack beside what others run.
// wgctrl and wg(8) configure it, upstream wireguard-go is its peer, as a program on a TUN
// and as a netstack, directly and from behind a NAT that forgets.
//
// It is a module of its own, so that what it compares with stays out of the product's.
package interop
