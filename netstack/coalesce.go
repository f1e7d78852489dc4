package netstack

import (
	"bytes"
	"encoding/binary"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Receive offload, inbound. TCP packets of one batch that follow each other in one flow are
// joined under one header before gVisor sees them: one walk through its layers, one lock,
// one acknowledgement instead of many. What is odd in any way goes up as it came, and
// gVisor judges it.
//
// No payload is summed up here. A checksum says what its payload must add up to, so the
// checksum of the joined packet follows from the parts' headers alone (RFC 1624 has the
// arithmetic). It is right if and only if theirs were, and gVisor verifies it as ever: a
// broken part costs the packets joined with it, which TCP sends again.

const (
	// maxRuns is how many flows of a batch are joined side by side. Two dozen streams of one
	// peer may well take turns in a batch; a list this short is faster than a map.
	maxRuns = 32

	// maxTCPHeader is the most that data offset can say.
	maxTCPHeader = 60
)

// run is what was joined so far: packets of one flow, in order, without a gap.
type run struct {
	packets [][]byte
	segment tcpSegment // of the first packet
	next    uint32     // the sequence number that continues the run
	size    int        // of the joined packet
	sum     uint16     // of all payload, as the checksums have it
}

// coalescer joins the packets of one batch. It holds no reference to a packet after flush.
type coalescer struct {
	runs [maxRuns]run
	used int
	up   func(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer)
}

// coalescers lends coalescers to calls of Write, of which there is one per peer at a time.
type coalescers struct{ pool sync.Pool }

func (p *coalescers) get(up func(tcpip.NetworkProtocolNumber, *stack.PacketBuffer)) *coalescer {
	c, _ := p.pool.Get().(*coalescer)
	if c == nil {
		c = new(coalescer)
	}
	c.up = up
	return c
}

func (p *coalescers) put(c *coalescer) {
	c.up = nil
	p.pool.Put(c)
}

// add takes the next packet of the batch. Packets of one flow go up in the order they came.
func (c *coalescer) add(proto tcpip.NetworkProtocolNumber, packet []byte) {
	s, ok := parseTCP(proto, packet)
	if !ok {
		c.deliver(proto, packet)
		return
	}
	i := c.find(s)
	if i >= 0 && c.runs[i].continues(s) {
		c.runs[i].append(s)
		if s.ends(c.runs[i].segment) {
			c.flushRun(i)
		}
		return
	}
	if i >= 0 {
		c.flushRun(i)
	}
	if !s.plain() {
		c.deliver(proto, packet)
		return
	}
	if c.used == maxRuns {
		c.flushRun(0)
	}
	c.runs[c.used].begin(s)
	c.used++
}

// flush sends up all that is left of the batch.
func (c *coalescer) flush() {
	for c.used > 0 {
		c.flushRun(0)
	}
}

func (c *coalescer) find(s tcpSegment) int {
	for i := range c.used {
		if c.runs[i].segment.sameFlow(s) {
			return i
		}
	}
	return -1
}

// flushRun sends run i up and closes the gap, keeping its memory at the end of the list.
func (c *coalescer) flushRun(i int) {
	r := c.runs[i]
	if len(r.packets) == 1 {
		c.deliver(r.segment.proto, r.packets[0])
	} else {
		c.up(r.segment.proto, r.join())
	}
	clear(r.packets)
	copy(c.runs[i:c.used], c.runs[i+1:c.used])
	c.used--
	c.runs[c.used] = run{packets: r.packets[:0]}
}

func (c *coalescer) deliver(proto tcpip.NetworkProtocolNumber, packet []byte) {
	c.up(proto, stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(packet))}))
}

func (r *run) begin(s tcpSegment) {
	*r = run{packets: r.packets[:0], segment: s, next: s.seq(), size: s.ipLen + s.tcpLen}
	r.append(s)
}

func (r *run) append(s tcpSegment) {
	sum := s.payloadSum()
	if r.payload()%2 == 1 {
		sum = sum<<8 | sum>>8 // its bytes change places in the joined packet's words
	}
	r.sum = checksum.Combine(r.sum, sum)
	r.packets = append(r.packets, s.packet)
	r.next += uint32(len(s.payload()))
	r.size += len(s.payload())
}

// payload is how many bytes of it are joined so far.
func (r *run) payload() int { return r.size - r.segment.ipLen - r.segment.tcpLen }

// continues reports whether s can be joined to the run: the same headers but for what must
// differ, the next bytes, and no more of them than in the first packet.
func (r *run) continues(s tcpSegment) bool {
	f := r.segment
	return s.seq() == r.next &&
		s.flags()&^header.TCPFlagPsh == header.TCPFlagAck &&
		len(s.payload()) > 0 && len(s.payload()) <= len(f.payload()) &&
		r.size+len(s.payload()) <= maxSegment &&
		f.sameHeader(s) && s.validIP()
}

// join makes the large packet: the first one's headers, everyone's payload, the last one's
// PSH.
func (r *run) join() *stack.PacketBuffer {
	s := r.segment
	var headers [header.IPv6MinimumSize + maxTCPHeader]byte
	h := headers[:copy(headers[:], s.packet[:s.ipLen+s.tcpLen])]
	last := header.TCP(r.packets[len(r.packets)-1][s.ipLen:])
	tcp := header.TCP(h[s.ipLen:])
	tcp.SetFlags(uint8(tcp.Flags() | last.Flags()&header.TCPFlagPsh))
	tcp.SetChecksum(0)
	tcp.SetChecksum(^checksum.Combine(checksum.Checksum(tcp, s.pseudoSum(r.size-s.ipLen)), r.sum))
	if s.proto == ipv4.ProtocolNumber {
		ip := header.IPv4(h)
		ip.SetTotalLength(uint16(r.size))
		ip.SetChecksum(0)
		ip.SetChecksum(^ip.CalculateChecksum())
	} else {
		header.IPv6(h).SetPayloadLength(uint16(r.size - s.ipLen))
	}
	view := buffer.NewView(r.size)
	view.Write(h)
	for _, packet := range r.packets {
		view.Write(packet[len(h):])
	}
	return stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(view)})
}

// tcpSegment is a TCP packet without IP options, extension headers or fragmentation, whose
// lengths are right.
type tcpSegment struct {
	proto         tcpip.NetworkProtocolNumber
	packet        []byte
	ipLen, tcpLen int // of the headers
}

func parseTCP(proto tcpip.NetworkProtocolNumber, packet []byte) (tcpSegment, bool) {
	s := tcpSegment{proto: proto, packet: packet}
	if proto == ipv4.ProtocolNumber {
		s.ipLen = header.IPv4MinimumSize
		if len(packet) < s.ipLen+header.TCPMinimumSize {
			return s, false
		}
		ip := header.IPv4(packet)
		if packet[0] != 0x45 || ip.Protocol() != uint8(header.TCPProtocolNumber) || int(ip.TotalLength()) != len(packet) ||
			ip.FragmentOffset() != 0 || ip.Flags()&header.IPv4FlagMoreFragments != 0 {
			return s, false
		}
	} else {
		s.ipLen = header.IPv6MinimumSize
		if len(packet) < s.ipLen+header.TCPMinimumSize {
			return s, false
		}
		ip := header.IPv6(packet)
		if ip.NextHeader() != uint8(header.TCPProtocolNumber) || int(ip.PayloadLength()) != len(packet)-s.ipLen {
			return s, false
		}
	}
	s.tcpLen = int(s.tcp().DataOffset())
	return s, s.tcpLen >= header.TCPMinimumSize && s.ipLen+s.tcpLen <= len(packet)
}

func (s tcpSegment) tcp() header.TCP        { return s.packet[s.ipLen:] }
func (s tcpSegment) payload() []byte        { return s.packet[s.ipLen+s.tcpLen:] }
func (s tcpSegment) seq() uint32            { return s.tcp().SequenceNumber() }
func (s tcpSegment) flags() header.TCPFlags { return s.tcp().Flags() }

// plain reports whether a run may begin with s: data, and nothing to say beyond it.
func (s tcpSegment) plain() bool {
	return s.flags() == header.TCPFlagAck && len(s.payload()) > 0 && s.validIP()
}

// ends reports whether nothing follows s in a run that began with first.
func (s tcpSegment) ends(first tcpSegment) bool {
	return s.flags()&header.TCPFlagPsh != 0 || len(s.payload()) < len(first.payload())
}

// validIP verifies the checksum of the IP header, which IPv6 has not.
func (s tcpSegment) validIP() bool {
	return s.proto == ipv6.ProtocolNumber || header.IPv4(s.packet).IsChecksumValid()
}

// payloadSum is what the payload adds up to if the checksum is right.
func (s tcpSegment) payloadSum() uint16 {
	tcp := s.tcp()
	return ^checksum.Checksum(tcp[:s.tcpLen], s.pseudoSum(len(tcp)))
}

// pseudoSum is the sum of the pseudo header for a segment of that length.
func (s tcpSegment) pseudoSum(length int) uint16 {
	sum := checksum.Checksum(s.addressing(), uint16(header.TCPProtocolNumber))
	return checksum.Combine(sum, uint16(length))
}

// addressing is where the addresses lie in an IP header.
func (s tcpSegment) addressing() []byte {
	if s.proto == ipv4.ProtocolNumber {
		return s.packet[12:20]
	}
	return s.packet[8:40]
}

func (s tcpSegment) ports() uint32 { return binary.BigEndian.Uint32(s.tcp()) }

func (s tcpSegment) sameFlow(o tcpSegment) bool {
	return s.proto == o.proto && s.ports() == o.ports() && bytes.Equal(s.addressing(), o.addressing())
}

// sameHeader compares, within one flow, what must be equal in packets that are joined: type
// of service, time to live, fragmentation flags and flow label in IP; acknowledgement,
// window and options in TCP.
func (s tcpSegment) sameHeader(o tcpSegment) bool {
	a, b := s.packet, o.packet
	if s.tcpLen != o.tcpLen || !s.sameIP(a, b) {
		return false
	}
	a, b = a[s.ipLen:s.ipLen+s.tcpLen], b[s.ipLen:s.ipLen+s.tcpLen]
	return bytes.Equal(a[8:12], b[8:12]) && bytes.Equal(a[14:16], b[14:16]) && bytes.Equal(a[header.TCPMinimumSize:], b[header.TCPMinimumSize:])
}

func (s tcpSegment) sameIP(a, b []byte) bool {
	if s.proto == ipv6.ProtocolNumber {
		return bytes.Equal(a[:4], b[:4]) && a[7] == b[7]
	}
	return a[1] == b[1] && a[6] == b[6] && a[8] == b[8]
}
