// Package demo shows what Stillwire is for, without root and without a cluster: real
// WireGuard traffic between three nodes in one process, over UDP on loopback, while the
// devices that carry it are changed ten thousand times.
//
//	    b (127.0.0.1 and ::1)
//	  /   \
//	a ----- c            every pair: UDP and TCP both ways
//	         \
//	          NAT        c is behind it, and it changes its port now and then
//
// Run does it the way Stillwire does, or, naive, the way agents do that apply a whole
// configuration whenever something differs. Everything else is the same in both.
package demo
