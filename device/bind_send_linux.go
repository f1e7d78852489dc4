package device

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// outbox is what one call of send works with; calls run beside each other, so each takes one
// from the socket's pool.
//
// With GSO a run of equal-sized packets becomes one message, gathered by the kernel from the
// packets' own buffers and cut into datagrams as late as the network card.
type outbox struct {
	sock    *fastSocket
	msgs    [bindBatch]unix.Mmsghdr
	iovs    [bindBatch]unix.Iovec // one per packet
	control [bindBatch]controlBuffer
	packets [bindBatch]int // how many each message carries
	n       int            // messages packed
	sent    int            // messages that the kernel took
	errno   unix.Errno
	full    bool
	try     func(fd uintptr)
	wait    func(fd uintptr) bool
}

func newOutbox(s *fastSocket) *outbox {
	o := &outbox{sock: s}
	o.try = func(fd uintptr) { o.full = !o.write(fd) }
	o.wait = o.write
	return o
}

// attempt says how the next messages are sent, and what is suspected of the failure before.
type attempt struct {
	gso, src bool
	doubtGSO unix.Errno // sent without it since this error
	doubtSrc bool
}

func (s *fastSocket) send(bufs [][]byte, ep *udpEndpoint) (first error) {
	s.line.count.sent(bufs)
	o := s.outboxes.Get().(*outbox)
	defer s.release(o)
	a := attempt{gso: s.gso.Load() && !ep.noGSO.Load(), src: ep.wire.infoLen > 0 && !ep.noSrc.Load()}
	for len(bufs) > 0 {
		if !a.src {
			if err := s.line.routes.avoid(s.line.bind.tunnel.Load(), ep.dst.Addr()); err != nil {
				return cmp.Or(first, err)
			}
		}
		o.pack(bufs[:min(len(bufs), bindBatch)], ep, a)
		err := o.flush()
		if done := o.done(); done > 0 {
			bufs = bufs[done:]
			s.judge(&a, ep)
		}
		if err == nil {
			continue
		}
		if o.errno == 0 {
			return err // the socket is closed
		}
		if a.degrade(o.errno, o.segmented()) {
			continue
		}
		if first == nil {
			first = err
		}
		if o.errno != unix.EMSGSIZE {
			return first
		}
		bufs = bufs[1:] // this one is too large for the path, the next may not be
		a.acquitGSO()
	}
	return first
}

// degrade chooses what to do without after an error, and reports whether there is something.
func (a *attempt) degrade(errno unix.Errno, segmented bool) bool {
	switch {
	case segmented && blamesGSO(errno):
		a.gso, a.doubtGSO = false, errno
	case a.src && blamesSource(errno):
		a.src, a.doubtSrc = false, true
		a.acquitGSO()
	default:
		return false
	}
	return true
}

// acquitGSO uses it again after what failed with it failed without it as well.
func (a *attempt) acquitGSO() {
	if a.doubtGSO != 0 {
		a.gso, a.doubtGSO = true, 0
	}
}

// blamesGSO: EIO is a device without checksum offload, or IPsec; EINVAL and EMSGSIZE are
// segments larger than the path's MTU; ENOBUFS and ENOMEM are no room for one large packet.
func blamesGSO(errno unix.Errno) bool {
	switch errno {
	case unix.EIO, unix.EINVAL, unix.EMSGSIZE, unix.ENOBUFS, unix.ENOMEM, unix.EOPNOTSUPP:
		return true
	}
	return false
}

// blamesSource: our address is gone, or nothing leads from it to the peer.
func blamesSource(errno unix.Errno) bool {
	switch errno {
	case unix.EADDRNOTAVAIL, unix.EINVAL, unix.ENODEV, unix.ENETUNREACH, unix.EHOSTUNREACH:
		return true
	}
	return false
}

// judge draws the conclusions when what failed went through without.
func (s *fastSocket) judge(a *attempt, ep *udpEndpoint) {
	if a.doubtSrc {
		a.doubtSrc = false
		ep.ClearSrc()
		s.line.count.sourcesCleared.Add(1)
	}
	if a.doubtGSO == 0 {
		return
	}
	s.line.count.gsoFallbacks.Add(1)
	switch a.doubtGSO {
	case unix.ENOBUFS, unix.ENOMEM: // of the moment
	case unix.EINVAL, unix.EMSGSIZE: // of the path
		ep.noGSO.Store(true)
	default:
		if s.gso.Swap(false) {
			s.line.bind.opt.Log.Warn().Err(a.doubtGSO).Stringer("socket", s.addr()).
				Msg("udp segmentation offload does not work here, going on without it")
		}
	}
	a.doubtGSO = 0
}

// release puts the outbox back, without holding on to the packets.
func (s *fastSocket) release(o *outbox) {
	clear(o.iovs[:])
	s.outboxes.Put(o)
}

// pack makes messages of the packets.
func (o *outbox) pack(bufs [][]byte, ep *udpEndpoint, a attempt) {
	o.n, o.sent, o.errno = 0, 0, 0
	limit := maxGSO4
	if o.sock.is6 {
		limit = maxGSO6
	}
	for i := 0; i < len(bufs); {
		run := 1
		if a.gso {
			run = gsoRun(bufs[i:], limit)
		}
		for j := i; j < i+run; j++ {
			o.iovs[j].Base = unsafe.SliceData(bufs[j])
			o.iovs[j].SetLen(len(bufs[j]))
		}
		o.add(&o.iovs[i], run, len(bufs[i]), ep, a.src)
		i += run
	}
}

func (o *outbox) add(iov *unix.Iovec, run, size int, ep *udpEndpoint, src bool) {
	h := &o.msgs[o.n].Hdr
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&ep.wire.name)), ep.wire.nameLen
	h.Iov = iov
	h.SetIovlen(run)
	h.Control = nil
	h.SetControllen(0)
	used := 0
	if src { // the kernel only reads it
		used = ep.wire.infoLen
		h.Control = &ep.wire.info.b[0]
		h.SetControllen(used)
	}
	if run > 1 {
		c := o.control[o.n].b[:]
		copy(c, ep.wire.info.b[:used])
		h.Control = &c[0]
		h.SetControllen(used + putSegment(c[used:], size))
	}
	o.packets[o.n] = run
	o.n++
}

const (
	maxGSO4     = maxMessage - 20 - 8 // payload of the largest IPv4 packet
	maxGSO6     = maxMessage - 8      // IPv6 does not count its header
	maxSegments = 64                  // UDP_MAX_SEGMENTS of kernels before 6.9
)

// gsoRun returns how many of the first packets can be one message: of equal size but for the
// last, which may be shorter.
func gsoRun(bufs [][]byte, limit int) int {
	size, total := len(bufs[0]), 0
	for n, b := range bufs {
		if n == maxSegments || len(b) > size || len(b) == 0 || total+len(b) > limit {
			return max(n, 1)
		}
		total += len(b)
		if len(b) < size {
			return n + 1
		}
	}
	return len(bufs)
}

// flush sends what is packed. It does not take the connection's write lock, which would line
// up the senders of all peers, unless it has to wait for room.
func (o *outbox) flush() error {
	o.full = false
	if err := o.sock.raw.Control(o.try); err != nil {
		return err
	}
	if o.full {
		if err := o.sock.raw.Write(o.wait); err != nil {
			return err
		}
	}
	if o.errno != 0 {
		return os.NewSyscallError("sendmmsg", o.errno)
	}
	return nil
}

// write sends until all is sent, or an error, or the socket is full, which is false.
func (o *outbox) write(fd uintptr) bool {
	for o.sent < o.n {
		n, errno := o.sock.kernel.sendmmsg(fd, o.msgs[o.sent:o.n])
		switch {
		case errno == 0:
			o.sent += n
		case errno == unix.EAGAIN:
			return false
		case errno != unix.EINTR:
			o.errno = errno
			return true
		}
	}
	return true
}

// done returns how many packets the kernel took.
func (o *outbox) done() (packets int) {
	for _, n := range o.packets[:o.sent] {
		packets += n
	}
	return packets
}

// segmented reports whether the message that failed was to be cut by the kernel.
func (o *outbox) segmented() bool { return o.sent < o.n && o.packets[o.sent] > 1 }

// wireEndpoint is an endpoint as the system calls take it.
type wireEndpoint struct {
	name    unix.RawSockaddrInet6 // an IPv4 address is laid over it
	nameLen uint32
	info    controlBuffer // IP_PKTINFO or IPV6_PKTINFO
	infoLen int           // 0: the system chooses the source
}

// encode errs only on a zone that is no interface.
//
// The interface that the peer came in on is told for link-local sources alone. For others it
// would force packets out there even when the route now leads elsewhere: see routeWatch.
func (w *wireEndpoint) encode(dst netip.AddrPort, src netip.Addr, ifindex uint32) error {
	scope, err := zoneIndex(dst.Addr().Zone())
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&w.name.Port))[:], dst.Port())
	if dst.Addr().Is4() {
		w.name.Family, w.nameLen = unix.AF_INET, unix.SizeofSockaddrInet4
		(*unix.RawSockaddrInet4)(unsafe.Pointer(&w.name)).Addr = dst.Addr().As4()
	} else {
		w.name.Family, w.nameLen = unix.AF_INET6, unix.SizeofSockaddrInet6
		w.name.Addr, w.name.Scope_id = dst.Addr().As16(), scope
	}
	if src.IsValid() {
		w.infoLen = putSource(w.info.b[:], src, ifindex)
	}
	return nil
}

// putSource and putSegment write a control message and return the space it takes.

func putSource(b []byte, src netip.Addr, ifindex uint32) int {
	if src.Is4() {
		data := putHeader(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		spec := src.As4()
		copy(data[4:8], spec[:])
		return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
	}
	data := putHeader(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
	addr := src.As16()
	copy(data, addr[:])
	if src.IsLinkLocalUnicast() {
		binary.NativeEndian.PutUint32(data[16:], ifindex)
	}
	return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
}

func putSegment(b []byte, size int) int {
	data := putHeader(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	binary.NativeEndian.PutUint16(data, uint16(size))
	return unix.CmsgSpace(2)
}

func putHeader(b []byte, level, kind int32, size int) (data []byte) {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(size))
	return b[unix.CmsgLen(0):unix.CmsgLen(size)]
}
