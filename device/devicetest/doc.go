// Package devicetest is an in-memory network on which many real wireguard-go devices run in
// one process: hosts with addresses, NATs, loss, delay, partitions, and a TUN made of channels.
//
//	   Network ──────────────── 203.0.113.0/24, 2001:db8::/32, whatever hosts claim
//	     │            │
//	Host "192.0.2.1"  NAT 203.0.113.9 (mappings, filter, timeout)
//	     │                 │
//	    Bind            Host "10.0.0.2" ── Bind
//
// It does no I/O and uses only channels, mutexes that are never held while something waits,
// and the time package, so it works inside a [testing/synctest] bubble, where hours pass in
// milliseconds, and outside of one alike. A Network, with everything on it, belongs to the
// bubble that made it. [Network.Close] ends all that it started.
//
// All methods may be called from any goroutine, and take effect at once for packets that are
// sent afterwards. Packets that are under way arrive by the rules of the moment they arrive:
// an address that moved and a NAT mapping that is gone lose them, as in life.
//
// # Finalizers and synctest
//
// wireguard-go drains the queues of a peer that is garbage collected, from a finalizer. That
// touches channels which belong to a bubble from outside of it, which the runtime punishes
// by ending the process, at a random later moment. A wireguard-go device inside a bubble must
// therefore log through [Logger] (or [Bind.WrapLogger]), which takes these finalizers off.
package devicetest
