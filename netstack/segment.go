package netstack

import (
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Segmentation offload, outbound. gVisor's TCP hands us up to 64 KiB under one header, with
// the checksum left to do, and we cut that into packets while copying them into WireGuard's
// buffers: one walk through gVisor and one copy instead of 47.

// maxSegment is the largest packet, headers included, that gVisor may hand us: IP has
// 16 bits for it.
const maxSegment = 65535

// packetsOf is how many packets on the wire pkt stands for at this MTU.
func packetsOf(pkt *stack.PacketBuffer, mtu int) int {
	if pkt.GSOOptions.Type == stack.GSONone {
		return 1
	}
	size := segmentSize(pkt, mtu)
	return max(1, (pkt.Data().Size()+size-1)/size)
}

// segmentSize is the payload of one packet: as TCP agreed upon, or less where the MTU has
// become smaller since.
func segmentSize(pkt *stack.PacketBuffer, mtu int) int {
	return max(1, min(int(pkt.GSOOptions.MSS), mtu-pkt.HeaderSize()))
}

// segmenter gives out one packet after the other.
type segmenter struct {
	pkt     *stack.PacketBuffer
	offload bool // it is for us to cut and to compute checksums

	ip, tcp []byte // headers of the large segment
	pseudo  uint16 // sum of the pseudo header, without the length
	size    int    // payload of each packet but the last
	left    int    // payload not given out yet
	index   int    // packets given out
	cursor  cursor
}

// start begins with pkt, whose reference the segmenter takes over.
func (g *segmenter) start(pkt *stack.PacketBuffer, mtu int) {
	*g = segmenter{pkt: pkt, offload: pkt.GSOOptions.Type != stack.GSONone}
	views, skip := pkt.AsViewList()
	g.cursor = cursor{view: views.Front(), at: skip}
	if !g.offload {
		g.left = pkt.Size()
		return
	}
	g.ip, g.tcp = pkt.NetworkHeader().Slice(), pkt.TransportHeader().Slice()
	g.size, g.left = segmentSize(pkt, mtu), pkt.Data().Size()
	g.cursor.at += len(g.ip) + len(g.tcp)
	g.pseudo = header.PseudoHeaderChecksum(header.TCPProtocolNumber, pkt.Network().SourceAddress(), pkt.Network().DestinationAddress(), 0)
}

// active reports whether there is something to give out.
func (g *segmenter) active() bool { return g.pkt != nil }

// next copies the next packet into dst and returns its size. After the last one it lets the
// large segment go. When dst is too small it returns 0, and lets it go as well.
func (g *segmenter) next(dst []byte) (n int) {
	if n = g.nextSize(); n > len(dst) {
		g.release()
		return 0
	}
	if g.offload {
		g.cut(dst[:n])
	} else {
		g.cursor.read(dst[:n])
		g.left = 0
	}
	if g.left == 0 {
		g.release()
	}
	return n
}

func (g *segmenter) nextSize() int {
	if !g.offload {
		return g.left
	}
	return len(g.ip) + len(g.tcp) + min(g.left, g.size)
}

// cut makes one packet out of headers and the next part of the payload.
func (g *segmenter) cut(packet []byte) {
	ipLen, headers := len(g.ip), len(g.ip)+len(g.tcp)
	copy(packet, g.ip)
	copy(packet[ipLen:], g.tcp)
	payload := packet[headers:]
	g.cursor.read(payload)

	tcp := header.TCP(packet[ipLen:])
	flags := tcp.Flags()
	if g.left > len(payload) {
		flags &^= header.TCPFlagFin | header.TCPFlagPsh // only the last packet ends or pushes
	}
	if g.index > 0 {
		flags &^= header.TCPFlagCwr // the window was reduced once
	}
	tcp.SetFlags(uint8(flags))
	tcp.SetSequenceNumber(tcp.SequenceNumber() + uint32(g.index*g.size))
	tcp.SetChecksum(0)
	sum := checksum.Combine(g.pseudo, uint16(len(tcp)))
	tcp.SetChecksum(^tcp.CalculateChecksum(checksum.Combine(sum, checksum.Checksum(payload, 0))))
	g.fixIP(packet)

	g.left -= len(payload)
	g.index++
}

func (g *segmenter) fixIP(packet []byte) {
	if header.IPVersion(packet) == header.IPv6Version {
		header.IPv6(packet).SetPayloadLength(uint16(len(packet) - len(g.ip)))
		return
	}
	ip := header.IPv4(packet)
	ip.SetTotalLength(uint16(len(packet)))
	if ip.Flags()&header.IPv4FlagDontFragment == 0 {
		ip.SetID(ip.ID() + uint16(g.index)) // must differ where it may be fragmented (RFC 6864)
	}
	ip.SetChecksum(0)
	ip.SetChecksum(^ip.CalculateChecksum())
}

// release gives the packet buffer back. What was not given out is lost.
func (g *segmenter) release() {
	if g.pkt != nil {
		g.pkt.DecRef()
	}
	*g = segmenter{}
}

// cursor reads through the views of a packet buffer, which the holder of the buffer's
// reference may do.
type cursor struct {
	view *buffer.View
	at   int // bytes of view that are behind us; may reach beyond it
}

// read fills dst.
func (c *cursor) read(dst []byte) {
	for len(dst) > 0 && c.view != nil {
		part := c.view.AsSlice()
		if c.at >= len(part) {
			c.at -= len(part)
			c.view = c.view.Next()
			continue
		}
		n := copy(dst, part[c.at:])
		dst = dst[n:]
		c.at += n
	}
}
