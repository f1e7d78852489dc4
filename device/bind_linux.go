package device

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// bindBatch is how many datagrams one call moves at most.
const bindBatch = conn.IdealBatchSize

// kernel is what a Bind asks of the system. Tests put faults in.
type kernel struct {
	listenUDP listenFunc
	recvmmsg  func(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno)
	sendmmsg  func(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno)
}

func systemKernel() kernel {
	return kernel{listenUDP: listenUDP, recvmmsg: recvmmsg, sendmmsg: sendmmsg}
}

func recvmmsg(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(unsafe.SliceData(msgs))), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

func sendmmsg(fd uintptr, msgs []unix.Mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(unsafe.SliceData(msgs))), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// listen opens a fastSocket, or a plainSocket where the batch calls are missing or forbidden.
func (k kernel) listen(l *bindLine, at netip.AddrPort) (udpSocket, error) {
	s, err := newFastSocket(l, at)
	if errors.Is(err, errNoBatches) {
		l.bind.opt.Log.Info().Err(err).Msg("udp goes one datagram at a time")
		return newPlainSocket(l, at)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (k kernel) watchRoutes(mark *atomic.Uint32, log zerolog.Logger) *routeWatch {
	return newRouteWatch(mark, log)
}

// fastSocket moves batches of datagrams per system call. The runtime's poller does the
// waiting, by way of the net package's connection.
type fastSocket struct {
	line   *bindLine
	kernel kernel
	conn   *net.UDPConn
	raw    syscall.RawConn
	is6    bool
	sticky bool // the kernel tells which of our addresses was spoken to

	hasGSO   bool
	gso      atomic.Bool
	outboxes sync.Pool

	wantGRO atomic.Bool
	hasGRO  atomic.Bool // mirrors in.gro for describe
	in      inbox
}

var errNoBatches = errors.New("the system has no recvmmsg and sendmmsg")

func newFastSocket(l *bindLine, at netip.AddrPort) (*fastSocket, error) {
	s := &fastSocket{line: l, kernel: l.bind.kernel, is6: l.network == "udp6"}
	s.outboxes.New = func() any { return newOutbox(s) }
	c, err := s.kernel.listenUDP(l.network, at, func(_, _ string, raw syscall.RawConn) error {
		var probed error
		return errors.Join(raw.Control(func(fd uintptr) { probed = s.setUp(fd) }), probed)
	})
	if err != nil {
		return nil, err
	}
	s.conn = c
	if s.raw, err = c.SyscallConn(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.in.init(s)
	return s, nil
}

// setUp finds out, before the socket has its port, what it can do. Only what the Bind cannot
// do without is an error.
func (s *fastSocket) setUp(fd uintptr) error {
	if _, errno := s.kernel.recvmmsg(fd, nil); isMissing(errno) {
		return errNoBatches
	}
	if _, errno := s.kernel.sendmmsg(fd, nil); isMissing(errno) {
		return errNoBatches
	}
	b := s.line.bind
	setBuffer(int(fd), unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, b.opt.ReceiveBuffer)
	setBuffer(int(fd), unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, b.opt.SendBuffer)
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if s.is6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	s.sticky = unix.SetsockoptInt(int(fd), level, option, 1) == nil
	_, err := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
	s.hasGSO = err == nil
	s.setGSO(!b.noGSO.Load())
	s.wantGRO.Store(!b.noGRO.Load())
	s.in.gro = s.wantGRO.Load() && s.enableGRO(fd)
	return nil
}

func isMissing(errno unix.Errno) bool { return errno == unix.ENOSYS || errno == unix.EPERM }

// setBuffer asks for the size beyond the system's limit, which takes CAP_NET_ADMIN, and
// then within it.
func setBuffer(fd, force, option, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size) // the default is no reason not to run
	}
}

// enableGRO reports whether GRO is on now. A kernel before 5.12 cannot tell, and has faults
// in it: there it stays off.
func (s *fastSocket) enableGRO(fd uintptr) bool {
	err := unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 1)
	if err == nil {
		var on int
		on, err = unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO)
		if err == nil && on == 1 {
			s.hasGRO.Store(true)
			return true
		}
	}
	s.disableGRO(fd)
	s.wantGRO.Store(false)
	return false
}

func (s *fastSocket) disableGRO(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 0) // where it cannot be set it is off
	s.hasGRO.Store(false)
}

func (s *fastSocket) setGSO(on bool) { s.gso.Store(on && s.hasGSO) }

// setGRO leaves the switch to the receiving goroutine: see inbox.
func (s *fastSocket) setGRO(on bool) {
	s.wantGRO.Store(on)
	s.interrupt()
}

func (s *fastSocket) setMark(mark uint32) error { return markSocket(s.conn, mark) }
func (s *fastSocket) interrupt()                { interruptUDP(s.conn) }
func (s *fastSocket) rearm()                    { rearmUDP(s.conn) }
func (s *fastSocket) close() error              { return s.conn.Close() }
func (s *fastSocket) addr() netip.AddrPort      { return localAddr(s.conn) }

func (s *fastSocket) describe(d *SocketStats) {
	d.Batched, d.Sticky = true, s.sticky
	d.GSO, d.GRO = s.gso.Load(), s.hasGRO.Load()
	_ = s.raw.Control(func(fd uintptr) { // a closed socket has nothing to tell
		d.ReceiveBuffer, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		d.SendBuffer, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		d.KernelDrops = kernelDrops(fd)
	})
}

// kernelDrops reads the drop counter out of SO_MEMINFO, of which it is the ninth value.
func kernelDrops(fd uintptr) uint64 {
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < uint32(unsafe.Sizeof(info)) {
		return 0
	}
	return uint64(info[8])
}
