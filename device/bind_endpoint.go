package device

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"
)

// udpEndpoint is a peer's address, and the address of ours that it spoke to. Peers and the
// source cache share it, so all but the flags never changes.
type udpEndpoint struct {
	dst     netip.AddrPort
	src     netip.Addr // invalid: the system chooses
	ifindex uint32     // of the interface on which src was spoken to
	wire    wireEndpoint

	noSrc     atomic.Bool   // src was cleared
	noGSO     atomic.Bool   // the path takes no segmented packets, for its MTU is too small
	confirmed atomic.Uint64 // the state of the routes under which src was found right
}

var _ conn.Endpoint = (*udpEndpoint)(nil)

// ClearSrc leaves the choice of our address to the system, until the peer speaks again.
func (e *udpEndpoint) ClearSrc() { e.noSrc.Store(true) }

func (e *udpEndpoint) SrcIP() netip.Addr {
	if e.noSrc.Load() {
		return netip.Addr{}
	}
	return e.src
}

func (e *udpEndpoint) SrcToString() string {
	if src := e.SrcIP(); src.IsValid() {
		return src.String()
	}
	return ""
}

func (e *udpEndpoint) DstIP() netip.Addr   { return e.dst.Addr() }
func (e *udpEndpoint) DstToString() string { return e.dst.String() }

// DstToBytes is what wireguard-go makes cookies of.
func (e *udpEndpoint) DstToBytes() []byte {
	b, _ := e.dst.MarshalBinary() // it has no error
	return b
}

// sourceKey is who sent a datagram, and to which address of ours, as the socket tells it.
// IPv4 addresses are mapped. It has no padding and no pointers: it is hashed per datagram.
type sourceKey struct {
	remote, local [16]byte
	scope         uint32 // interface index of a link-local remote
	ifindex       uint32 // of the interface it came in on
	port          uint32
}

// sourceCache finds the endpoint of each source without making one per datagram. It keeps
// those heard lately: when the young generation is full it becomes the old one, and the old
// one is emptied, so that a flood of forged sources costs bounded memory, and no more work
// for each than making an endpoint. It belongs to one goroutine.
type sourceCache struct {
	size       int
	young, old map[sourceKey]*udpEndpoint
	last       *udpEndpoint // of lastKey: most datagrams come in runs
	lastKey    sourceKey
	newSource  func()
	routes     *routeWatch
	count      atomic.Int64
}

// sourceCacheSize is of one generation: about 5 MB when it is full.
const sourceCacheSize = 1 << 14

func newSourceCache(size int, newSource func()) *sourceCache {
	return &sourceCache{
		size: size, newSource: newSource,
		young: make(map[sourceKey]*udpEndpoint), old: make(map[sourceKey]*udpEndpoint),
	}
}

// lookup returns the endpoint of a source. One whose address of ours was cleared is replaced
// by a fresh one: the peer spoke to that address just now, so it is right again.
func (c *sourceCache) lookup(key *sourceKey) *udpEndpoint {
	if c.last != nil && *key == c.lastKey && !c.last.noSrc.Load() {
		return c.last
	}
	ep := c.find(key)
	c.last, c.lastKey = ep, *key
	return ep
}

func (c *sourceCache) find(key *sourceKey) *udpEndpoint {
	ep, ok := c.young[*key]
	if ok && !ep.noSrc.Load() {
		return ep
	}
	known := ok
	if !ok {
		ep, known = c.old[*key]
	}
	if !known || ep.noSrc.Load() {
		ep = key.endpoint()
		ep.confirmed.Store(c.routes.generation())
	}
	c.keep(key, ep)
	if !known {
		c.newSource()
	}
	return ep
}

func (c *sourceCache) keep(key *sourceKey, ep *udpEndpoint) {
	if len(c.young) >= c.size {
		c.young, c.old = c.old, c.young
		clear(c.young)
	}
	c.young[*key] = ep
	c.count.Store(int64(len(c.young) + len(c.old)))
}

// forget clears the source address of all endpoints, those that peers hold among them.
func (c *sourceCache) forget() {
	for _, generation := range []map[sourceKey]*udpEndpoint{c.young, c.old} {
		for _, ep := range generation {
			ep.ClearSrc()
		}
	}
}

func (k *sourceKey) endpoint() *udpEndpoint {
	remote := netip.AddrFrom16(k.remote).Unmap()
	if k.scope != 0 && remote.Is6() {
		remote = remote.WithZone(zoneName(k.scope))
	}
	ep := &udpEndpoint{dst: netip.AddrPortFrom(remote, uint16(k.port)), ifindex: k.ifindex}
	if local := netip.AddrFrom16(k.local).Unmap(); !local.IsUnspecified() && !local.IsMulticast() {
		ep.src = local
	}
	if err := ep.wire.encode(ep.dst, ep.src, k.ifindex); err != nil {
		ep.src = netip.Addr{} // the interface went away under the datagram
	}
	return ep
}

// zoneName returns the name of an interface, or its index when it has none any more.
func zoneName(index uint32) string {
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		return i.Name
	}
	return strconv.Itoa(int(index))
}

// zoneIndex is the inverse of zoneName. "" is 0, any interface.
func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index), nil
	}
	index, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("no interface is called %s", zone)
	}
	return uint32(index), nil
}
