package device

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// groMessages is how many messages are read at once with UDP GRO. Each may hold 64 datagrams.
const groMessages = 16

// inbox is the receiving half of a fastSocket, and belongs to the receiving goroutine.
//
// With GRO a message may hold many datagrams of one size, so it goes into a private buffer
// of 64 KiB and is split from there into wireguard-go's buffers; what does not fit into one
// call waits for the next. Without GRO the kernel writes straight into wireguard-go's.
type inbox struct {
	sock    *fastSocket
	msgs    [bindBatch]unix.Mmsghdr
	iovs    [bindBatch]unix.Iovec
	names   [bindBatch]unix.RawSockaddrInet6 // an IPv4 address is laid over it
	control [bindBatch]controlBuffer
	private []byte // groMessages times maxMessage, made when GRO is first used
	read    func(fd uintptr) bool

	gro    bool // the socket has it on
	gather bool // the last read was into private
	armed  int  // messages asked for
	n      int  // messages read
	errno  unix.Errno

	// what is left to split: messages from next on, and of the one before that, rest
	next int
	rest []byte
	size int // of each datagram in rest
	ep   *udpEndpoint
}

// maxMessage is the largest UDP payload, joined by GRO or not.
const maxMessage = 1<<16 - 1

// controlBuffer holds what the kernel tells of a message: packet info and segment size.
type controlBuffer struct {
	_ [0]uint64 // cmsghdr wants its alignment
	b [64]byte
}

func (in *inbox) init(s *fastSocket) {
	in.sock = s
	in.read = in.tryRead
	for i := range in.msgs {
		h := &in.msgs[i].Hdr
		h.Name = (*byte)(unsafe.Pointer(&in.names[i]))
		h.Iov = &in.iovs[i]
		h.SetIovlen(1)
		h.Control = &in.control[i].b[0]
	}
}

func (s *fastSocket) receive(packets [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	in := &s.in
	for {
		if n := in.split(packets, sizes, eps); n > 0 {
			return n, nil
		}
		in.arm(packets)
		if err := s.raw.Read(in.read); err != nil {
			return 0, err
		}
		if in.errno != 0 {
			return 0, os.NewSyscallError("recvmmsg", in.errno)
		}
		if n := in.take(sizes, eps); n > 0 {
			return n, nil
		}
	}
}

// arm points the messages at where they shall go.
func (in *inbox) arm(packets [][]byte) {
	in.gather = in.gro
	in.n, in.next, in.errno = 0, 0, 0
	in.armed = min(len(packets), bindBatch)
	if in.gather {
		in.armed = groMessages
		if in.private == nil {
			in.private = make([]byte, groMessages*maxMessage)
		}
	}
	for i := range in.armed {
		buf := in.buffer(i, packets)
		in.iovs[i].Base = unsafe.SliceData(buf)
		in.iovs[i].SetLen(len(buf))
		h := &in.msgs[i].Hdr
		h.Namelen, h.Flags = unix.SizeofSockaddrInet6, 0
		h.SetControllen(len(in.control[i].b))
	}
}

func (in *inbox) buffer(i int, packets [][]byte) []byte {
	if in.gather {
		return in.private[i*maxMessage:][:maxMessage]
	}
	return packets[i]
}

// tryRead reads what is there; false makes the poller wait for more.
func (in *inbox) tryRead(fd uintptr) bool {
	if in.switched(fd) {
		return true // without a message: arm again
	}
	for {
		in.n, in.errno = in.sock.kernel.recvmmsg(fd, in.msgs[:in.armed])
		if in.errno == 0 {
			return true
		}
		in.n = 0
		if in.errno != unix.EINTR {
			break
		}
	}
	if in.errno == unix.EAGAIN {
		in.errno = 0
		return false
	}
	return true
}

// switched does what setGRO asked for, and reports whether it did.
//
// Joined datagrams that wait in the socket when GRO goes off could not be told apart any
// more. So it goes off for good only once the socket is seen empty while it is off: what
// comes later comes one by one.
func (in *inbox) switched(fd uintptr) bool {
	want := in.sock.wantGRO.Load()
	if want == in.gro {
		return false
	}
	if want {
		in.gro = in.sock.enableGRO(fd)
		return true
	}
	in.sock.disableGRO(fd)
	if isEmpty(fd) {
		in.gro = false
		return true
	}
	in.gro = in.sock.enableGRO(fd)
	return !in.gro
}

// isEmpty reports whether no message waits.
func isEmpty(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// take gives out the datagrams that were read in place.
func (in *inbox) take(sizes []int, eps []conn.Endpoint) int {
	if in.gather {
		return 0
	}
	n := in.n
	for i := range n {
		ep, _, ok := in.source(i)
		sizes[i], eps[i] = int(in.msgs[i].Len), ep
		if !ok {
			sizes[i] = 0 // wireguard-go passes over it
		}
	}
	in.n = 0
	return n
}

// split gives out datagrams of the messages that were gathered.
func (in *inbox) split(packets [][]byte, sizes []int, eps []conn.Endpoint) (n int) {
	for n < len(packets) {
		if len(in.rest) == 0 && !in.turn() {
			break
		}
		size := min(in.size, len(in.rest))
		sizes[n], eps[n] = copy(packets[n], in.rest[:size]), in.ep
		in.rest = in.rest[size:]
		n++
	}
	return n
}

// turn goes to the next gathered message that holds something.
func (in *inbox) turn() bool {
	for in.gather && in.next < in.n {
		i := in.next
		in.next++
		length := int(in.msgs[i].Len)
		ep, size, ok := in.source(i)
		if !ok || length == 0 {
			continue
		}
		if size == 0 {
			size = length
		}
		in.ep, in.size, in.rest = ep, size, in.buffer(i, nil)[:length]
		return true
	}
	return false
}

// source reads who sent message i, and the size of the datagrams in it, 0 when it is one.
func (in *inbox) source(i int) (ep *udpEndpoint, size int, ok bool) {
	h := &in.msgs[i].Hdr
	if h.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 {
		var c control
		if c, ok = parseControl(in.control[i].b[:h.Controllen]); ok {
			if c.ifindex != 0 && c.ifindex == in.sock.line.bind.tunnel.Load() {
				in.sock.line.count.fromTunnel.Add(1)
				return nil, 0, false
			}
			key := sourceKey{local: c.local, ifindex: c.ifindex}
			if ok = key.setName(&in.names[i], h.Namelen); ok {
				return in.sock.line.sources.lookup(&key), c.segment, true
			}
		}
	}
	in.sock.line.count.malformed.Add(1)
	return nil, 0, false
}

// setName reads the sender out of a socket address.
func (k *sourceKey) setName(name *unix.RawSockaddrInet6, length uint32) bool {
	switch {
	case name.Family == unix.AF_INET && length >= unix.SizeofSockaddrInet4:
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		k.remote = mapped(v4.Addr)
	case name.Family == unix.AF_INET6 && length >= unix.SizeofSockaddrInet6:
		k.remote, k.scope = name.Addr, name.Scope_id
	default:
		return false
	}
	k.port = uint32(binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:]))
	return true
}

// mapped is the IPv4-mapped form of RFC 4291 section 2.5.5.2.
func mapped(v4 [4]byte) [16]byte {
	return [16]byte{10: 0xff, 11: 0xff, 12: v4[0], 13: v4[1], 14: v4[2], 15: v4[3]}
}

// control is what the control data of a message says.
type control struct {
	local   [16]byte // our address, zero when not told
	ifindex uint32
	segment int // size of the datagrams that GRO joined, 0 when there is one
}

// parseControl reads control data; false when it is damaged.
func parseControl(b []byte) (c control, ok bool) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return c, false
		}
		b = rest
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			c.ifindex = binary.NativeEndian.Uint32(data)
			c.local = mapped([4]byte(data[4:])) // ipi_spec_dst: ours also when the packet was a broadcast
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			c.local = [16]byte(data)
			c.ifindex = binary.NativeEndian.Uint32(data[16:])
		case h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			c.segment = int(binary.NativeEndian.Uint32(data))
		}
	}
	return c, c.segment >= 0 && c.segment <= maxMessage
}
