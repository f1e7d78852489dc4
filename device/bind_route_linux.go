package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// routeWatch finds endpoints whose source address stopped being right though it still
// exists: the default route moved from one interface to another, say. It does what the
// kernel's WireGuard does: packets that leave by another interface than the peer came in on
// get a source anew.
//
// A goroutine of newRouteWatch notes that something changed about links, addresses or
// routes, at most every routePause. The next send to each endpoint then asks the kernel, once,
// where it would go. At rest neither costs anything.
type routeWatch struct {
	changes atomic.Uint64
	events  *os.File
	raw     syscall.RawConn
	done    chan struct{}
	wg      sync.WaitGroup
	lookup  func(dst, src netip.Addr) (ifindex uint32, err error)
	mark    *atomic.Uint32 // of the packets, which rules may look at
	own     atomic.Pointer[ownAddrs]

	mu    sync.Mutex // of what follows
	query int        // netlink socket, -1 when closed
	seq   uint32     // of the last request
	buf   [routeAnswer]byte
}

const (
	routePause  = 200 * time.Millisecond
	routeAnswer = 4096
	loopback    = 1 // the kernel's LOOPBACK_IFINDEX
)

// newRouteWatch returns nil where netlink is not to be had, as in some sandboxes. Sources are
// then given up only when sending from them fails, and by wireguard-go when handshakes do.
func newRouteWatch(mark *atomic.Uint32, log zerolog.Logger) *routeWatch {
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE)
	w, err := openRouteWatch(groups)
	if err != nil {
		log.Debug().Err(err).Msg("cannot watch routes: a source address that is off the route is noticed late")
		return nil
	}
	w.mark = mark
	w.wg.Go(w.watch)
	return w
}

func openRouteWatch(groups uint32) (*routeWatch, error) {
	events, err := netlinkSocket(groups)
	if err != nil {
		return nil, err
	}
	query, err := netlinkSocket(0)
	if err != nil {
		return nil, errors.Join(err, unix.Close(events))
	}
	w := &routeWatch{events: os.NewFile(uintptr(events), "netlink"), query: query, done: make(chan struct{})}
	w.lookup = w.ask
	if w.raw, err = w.events.SyscallConn(); err != nil {
		return nil, errors.Join(err, w.events.Close(), unix.Close(query))
	}
	return w, nil
}

func netlinkSocket(groups uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return -1, errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	return fd, nil
}

// watch counts changes until the watch is closed.
func (w *routeWatch) watch() {
	var buf [routeAnswer]byte
	for w.raw.Read(func(fd uintptr) bool { return drain(int(fd), buf[:]) }) == nil {
		w.changes.Add(1)
		select {
		case <-w.done:
			return
		case <-time.After(routePause):
		}
	}
}

// drain takes all events and reports whether there was one. What they say does not matter,
// nor that some were lost because the buffer was full.
func drain(fd int, buf []byte) (some bool) {
	for {
		_, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return some
		case err == nil || errors.Is(err, unix.ENOBUFS):
			some = true
		case !errors.Is(err, unix.EINTR):
			return true
		}
	}
}

// generation is how often something changed. Sources found right in this generation are right.
func (w *routeWatch) generation() uint64 {
	if w == nil {
		return 0
	}
	return w.changes.Load()
}

// confirm clears the source of an endpoint that is off the route since something changed,
// and reports whether all is well.
func (w *routeWatch) confirm(ep *udpEndpoint) bool {
	if w == nil || ep.confirmed.Load() == w.changes.Load() {
		return true
	}
	ep.confirmed.Store(w.changes.Load())
	src := ep.SrcIP()
	if !src.IsValid() || ep.dst.Addr().Zone() != "" {
		return true
	}
	ifindex, err := w.lookup(ep.dst.Addr(), src)
	if err == nil && (ifindex == ep.ifindex || ifindex == loopback) {
		return true
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return true // maybe no route from anywhere; if it is the source, sending fails and finds out
	}
	ep.ClearSrc()
	return false
}

// errOwnTUN is why a datagram is not sent.
var errOwnTUN = errors.New("would leave by our own tunnel, or from its address")

// avoid reports why nothing may be sent to dst from an address of the system's choice: when a
// link has lost its address, the system takes one of any other, the tunnel's own among them.
// The peer would follow us there, which for it is into the tunnel, and never come back. And a
// route into the tunnel is a loop. It costs a system call, and is asked only for endpoints of
// which we do not know the address that they speak to.
func (w *routeWatch) avoid(tunnel uint32, dst netip.Addr) error {
	if w == nil || tunnel == 0 || dst.Zone() != "" { // on a link, the system takes an address of the link
		return nil
	}
	r, err := w.find(dst, netip.Addr{})
	switch {
	case err != nil:
		return nil // sending will tell
	case r.ifindex == tunnel:
		return fmt.Errorf("%w: %w", errOwnTUN, unix.ELOOP)
	case w.owns(tunnel, r.src):
		return fmt.Errorf("%w: %w", errOwnTUN, unix.EADDRNOTAVAIL)
	}
	return nil
}

// ownAddrs are the addresses of the tunnel while nothing changes.
type ownAddrs struct {
	tunnel     uint32
	generation uint64
	addrs      []netip.Addr
}

func (w *routeWatch) owns(tunnel uint32, a netip.Addr) bool {
	own, now := w.own.Load(), w.changes.Load()
	if own == nil || own.tunnel != tunnel || own.generation != now {
		own = &ownAddrs{tunnel, now, addrsOf(tunnel)}
		w.own.Store(own)
	}
	return slices.Contains(own.addrs, a)
}

// addrsOf returns the addresses of an interface; none when it is gone.
func addrsOf(ifindex uint32) (addrs []netip.Addr) {
	list, err := (&net.Interface{Index: int(ifindex)}).Addrs()
	if err != nil {
		return nil
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			addr, _ := netip.AddrFromSlice(n.IP)
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs
}

// close ends the goroutine and waits for it.
func (w *routeWatch) close() {
	if w == nil {
		return
	}
	close(w.done)
	w.events.Close()
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	unix.Close(w.query)
	w.query = -1
}

// ask returns the interface by which packets from src to dst would leave now.
func (w *routeWatch) ask(dst, src netip.Addr) (uint32, error) {
	r, err := w.find(dst, src)
	return r.ifindex, err
}

// route is how packets would leave.
type route struct {
	ifindex uint32
	src     netip.Addr // the system's choice, when it was left to it
}

// find returns how packets to dst would leave now, from src if that is valid. The kernel
// answers within the call, so nothing waits.
func (w *routeWatch) find(dst, src netip.Addr) (route, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.query < 0 {
		return route{}, os.ErrClosed
	}
	w.seq++
	n := putRouteRequest(w.buf[:], w.seq, dst, src, w.mark.Load())
	if err := unix.Sendto(w.query, w.buf[:n], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return route{}, os.NewSyscallError("sendto", err)
	}
	for {
		n, _, err := unix.Recvfrom(w.query, w.buf[:], 0)
		if err != nil {
			return route{}, os.NewSyscallError("recvfrom", err)
		}
		if r, err := parseRouteAnswer(w.buf[:n], w.seq); !errors.Is(err, errOtherAnswer) {
			return r, err
		}
	}
}

// putRouteRequest writes an RTM_GETROUTE request (rtnetlink(7)) and returns its length.
func putRouteRequest(b []byte, seq uint32, dst, src netip.Addr, mark uint32) int {
	clear(b[:routeHeader])
	n := routeHeader
	n += putAttr(b[n:], unix.RTA_DST, dst.AsSlice())
	if src.IsValid() {
		n += putAttr(b[n:], unix.RTA_SRC, src.AsSlice())
	}
	n += putAttr(b[n:], unix.RTA_MARK, binary.NativeEndian.AppendUint32(nil, mark))
	binary.NativeEndian.PutUint32(b[0:], uint32(n))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[8:], seq)
	rt := b[unix.SizeofNlMsghdr:]
	rt[0] = unix.AF_INET
	if dst.Is6() {
		rt[0] = unix.AF_INET6
	}
	rt[1], rt[2] = byte(dst.BitLen()), byte(max(src.BitLen(), 0))
	return n
}

// routeHeader is the length of nlmsghdr and rtmsg.
const routeHeader = unix.SizeofNlMsghdr + unix.SizeofRtMsg

// putAttr writes an attribute whose length is a multiple of four.
func putAttr(b []byte, kind uint16, data []byte) int {
	binary.NativeEndian.PutUint16(b, uint16(unix.SizeofRtAttr+len(data)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	return unix.SizeofRtAttr + copy(b[unix.SizeofRtAttr:], data)
}

var (
	errRouteAnswer = errors.New("the kernel's answer about a route makes no sense")
	errOtherAnswer = errors.New("the kernel's answer is to another question")
)

// parseRouteAnswer returns a route, or the kernel's error.
func parseRouteAnswer(b []byte, seq uint32) (route, error) {
	if len(b) < unix.SizeofNlMsghdr+4 {
		return route{}, errRouteAnswer
	}
	if binary.NativeEndian.Uint32(b[8:]) != seq {
		return route{}, errOtherAnswer
	}
	length := min(int(binary.NativeEndian.Uint32(b)), len(b))
	switch kind := binary.NativeEndian.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR:
		return route{}, unix.Errno(-int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])))
	case kind == unix.RTM_NEWROUTE && length >= routeHeader:
		return parseRoute(b[routeHeader:length])
	}
	return route{}, errRouteAnswer
}

// parseRoute reads attributes until one does not fit.
func parseRoute(attrs []byte) (r route, err error) {
	for len(attrs) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < unix.SizeofRtAttr || size > len(attrs) {
			break
		}
		switch data := attrs[unix.SizeofRtAttr:size]; binary.NativeEndian.Uint16(attrs[2:]) {
		case unix.RTA_OIF:
			if len(data) >= 4 {
				r.ifindex = binary.NativeEndian.Uint32(data)
			}
		case unix.RTA_PREFSRC:
			r.src, _ = netip.AddrFromSlice(data)
		}
		attrs = attrs[min((size+3)&^3, len(attrs)):]
	}
	if r.ifindex == 0 {
		return route{}, errRouteAnswer
	}
	return r, nil
}
