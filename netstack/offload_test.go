package netstack

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"pgregory.net/rapid"
)

const ack, psh, fin = header.TCPFlagAck, header.TCPFlagPsh, header.TCPFlagFin

// tcpSpec is a TCP packet as a test writes it down.
type tcpSpec struct {
	v6      bool
	flow    uint16 // the source port
	seq     uint32
	ack     uint32
	flags   header.TCPFlags
	options []byte // a multiple of four bytes
	window  uint16
	tos     uint8
	payload []byte
}

// packet builds it with right checksums.
func (s tcpSpec) packet() []byte {
	tcp := header.TCP(make([]byte, header.TCPMinimumSize+len(s.options)+len(s.payload)))
	tcp.Encode(&header.TCPFields{
		SrcPort: s.flow, DstPort: 80, SeqNum: s.seq, AckNum: s.ack,
		DataOffset: uint8(header.TCPMinimumSize + len(s.options)), Flags: s.flags, WindowSize: s.window,
	})
	copy(tcp[header.TCPMinimumSize:], s.options)
	copy(tcp[header.TCPMinimumSize+len(s.options):], s.payload)
	src, dst := s.addresses()
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, uint16(len(tcp)))
	tcp.SetChecksum(^checksum.Checksum(tcp, sum))
	return append(s.ipHeader(len(tcp)), tcp...)
}

func (s tcpSpec) addresses() (src, dst tcpip.Address) {
	if s.v6 {
		return tcpipAddr(addrA6), tcpipAddr(addrB6)
	}
	return tcpipAddr(addrA4), tcpipAddr(addrB4)
}

func (s tcpSpec) ipHeader(length int) []byte {
	src, dst := s.addresses()
	if s.v6 {
		ip := header.IPv6(make([]byte, header.IPv6MinimumSize))
		ip.Encode(&header.IPv6Fields{PayloadLength: uint16(length), TransportProtocol: header.TCPProtocolNumber, HopLimit: 64, TrafficClass: s.tos, SrcAddr: src, DstAddr: dst})
		return ip
	}
	ip := header.IPv4(make([]byte, header.IPv4MinimumSize))
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(ip) + length), TTL: 64, TOS: s.tos, ID: uint16(s.seq), Protocol: uint8(header.TCPProtocolNumber), SrcAddr: src, DstAddr: dst})
	fixHeader(ip)
	return ip
}

func (s tcpSpec) proto() tcpip.NetworkProtocolNumber {
	if s.v6 {
		return ipv6.ProtocolNumber
	}
	return ipv4.ProtocolNumber
}

// segment builds it as gVisor hands it to a card that cuts segments: checksum not computed.
func (s tcpSpec) segment(mss int) *stack.PacketBuffer {
	p := s.packet()
	ipLen, tcpLen := len(p)-header.TCPMinimumSize-len(s.options)-len(s.payload), header.TCPMinimumSize+len(s.options)
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: 100,
		Payload:            scattered(s.payload),
	})
	copy(pkt.TransportHeader().Push(tcpLen), p[ipLen:ipLen+tcpLen])
	copy(pkt.NetworkHeader().Push(ipLen), p[:ipLen])
	header.TCP(pkt.TransportHeader().Slice()).SetChecksum(0xabcd)
	pkt.NetworkProtocolNumber = s.proto()
	pkt.GSOOptions = stack.GSO{Type: stack.GSOTCPv4, NeedsCsum: true, MSS: uint16(mss), MaxSize: maxSegment}
	return pkt
}

// scattered holds b in views of odd sizes, as payload often is.
func scattered(b []byte) (out buffer.Buffer) {
	for size := 1; len(b) > 0; size = size*3 + 1 {
		n := min(size, len(b))
		out.Append(buffer.NewViewWithData(b[:n]))
		b = b[n:]
	}
	return out
}

// isValid verifies all checksums and lengths of a TCP packet.
func isValid(p []byte) bool {
	proto, _ := protocolOf(p)
	s, ok := parseTCP(proto, p)
	if !ok || !s.validIP() {
		return false
	}
	return checksum.Checksum(s.tcp(), s.pseudoSum(len(s.tcp()))) == 0xffff
}

// cutAll runs pkt through a segmenter.
func cutAll(t fataler, pkt *stack.PacketBuffer, mtu int) (out [][]byte) {
	want := packetsOf(pkt, mtu)
	var g segmenter
	for g.start(pkt, mtu); g.active(); {
		buf := make([]byte, mtu)
		n := g.next(buf)
		if n == 0 {
			t.Fatalf("packet %d does not fit the MTU of %d", len(out), mtu)
		}
		out = append(out, buf[:n])
	}
	if len(out) != want {
		t.Fatalf("%d packets, but packetsOf says %d", len(out), want)
	}
	return out
}

type fataler interface{ Fatalf(string, ...any) }

// joinAll runs packets through a coalescer.
func joinAll(packets [][]byte) (out [][]byte) {
	var pool coalescers
	c := pool.get(func(_ tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
		view := pkt.ToView()
		out = append(out, bytes.Clone(view.AsSlice()))
		view.Release()
		pkt.DecRef()
	})
	for _, p := range packets {
		proto, _ := protocolOf(p)
		c.add(proto, p)
	}
	c.flush()
	pool.put(c)
	return out
}

func genSpec(t *rapid.T) tcpSpec {
	return tcpSpec{
		v6:      rapid.Bool().Draw(t, "v6"),
		flow:    uint16(rapid.IntRange(1, 65535).Draw(t, "flow")),
		seq:     rapid.Uint32().Draw(t, "seq"),
		ack:     rapid.Uint32().Draw(t, "ack"),
		flags:   ack | rapid.SampledFrom([]header.TCPFlags{0, psh, fin, psh | fin, header.TCPFlagCwr}).Draw(t, "flags"),
		options: make([]byte, 4*rapid.IntRange(0, 10).Draw(t, "options")),
		window:  rapid.Uint16().Draw(t, "window"),
		payload: randomBytes(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 65000).Draw(t, "payload")),
	}
}

// Cutting gives valid packets within the MTU whose payload is the segment's, of which only
// the last ends or pushes and only the first tells of congestion; joining them again gives
// as few packets as there can be.
func TestSegmentsAreCutAndJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := genSpec(t)
		mss := rapid.IntRange(536, 9000).Draw(t, "mss")
		mtu := rapid.IntRange(1280, 9100).Draw(t, "mtu")
		packets := cutAll(t, spec.segment(mss), mtu)
		var got []byte
		for i, p := range packets {
			if !isValid(p) {
				t.Fatalf("packet %d of %d is not valid: % x", i, len(packets), p[:60])
			}
			proto, _ := protocolOf(p)
			s, _ := parseTCP(proto, p)
			want := spec.flags
			if i > 0 {
				want &^= header.TCPFlagCwr
			}
			if i < len(packets)-1 {
				want &^= fin | psh
			}
			if s.flags() != want || s.seq() != spec.seq+uint32(len(got)) {
				t.Fatalf("packet %d of %d has flags %v and sequence number %d", i, len(packets), s.flags(), s.seq())
			}
			got = append(got, s.payload()...)
		}
		if !bytes.Equal(got, spec.payload) {
			t.Fatalf("%d bytes of payload became %d other ones", len(spec.payload), len(got))
		}
		if spec.flags == ack && len(spec.payload) > 0 {
			joined := joinAll(packets)
			if len(joined) != 1 || !isValid(joined[0]) || !bytes.Equal(joined[0][len(joined[0])-len(got):], got) {
				t.Fatalf("%d packets were joined to %d", len(packets), len(joined))
			}
		}
	})
}

// Whatever comes, in whatever order: of each flow the same bytes go up in the same order,
// valid where they were valid.
func TestJoiningKeepsWhatWasSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := map[uint16]uint32{}
		var in [][]byte
		broken := false
		for range rapid.IntRange(1, 128).Draw(t, "packets") {
			flow := uint16(rapid.IntRange(1, 40).Draw(t, "flow"))
			spec := tcpSpec{
				v6: flow%2 == 0, flow: flow, seq: next[flow], flags: ack, window: 100,
				payload: randomBytes(uint64(len(in)), rapid.SampledFrom([]int{0, 1, 7, 60, 60, 60, 60}).Draw(t, "size")),
			}
			switch rapid.IntRange(0, 15).Draw(t, "oddity") {
			case 0:
				spec.flags |= psh
			case 1:
				spec.flags |= fin
			case 2:
				spec.seq += 5 // a gap
			case 3:
				spec.window++
			case 4:
				spec.options = []byte{1, 1, 1, 0}
			case 5:
				spec.tos = 3
			}
			next[flow] = spec.seq + uint32(len(spec.payload))
			p := spec.packet()
			if rapid.IntRange(0, 60).Draw(t, "broken") == 0 {
				p[len(p)-1] ^= 0x10
				broken = true
			}
			in = append(in, p)
		}
		out := joinAll(in)
		if diff := cmp.Diff(byFlow(in), byFlow(out)); diff != "" {
			t.Fatal(diff)
		}
		for i, p := range out {
			if !broken && !isValid(p) {
				t.Fatalf("packet %d of %d is not valid", i, len(out))
			}
		}
		if broken && !slices.ContainsFunc(out, func(p []byte) bool { return !isValid(p) }) {
			t.Fatalf("a broken packet became a valid one")
		}
	})
}

// byFlow writes down, for each flow, which bytes come in which order.
func byFlow(packets [][]byte) map[uint16]string {
	flows := map[uint16]*strings.Builder{}
	for _, p := range packets {
		proto, _ := protocolOf(p)
		s, _ := parseTCP(proto, p)
		flow := s.tcp().SourcePort()
		if flows[flow] == nil {
			flows[flow] = new(strings.Builder)
		}
		for i, b := range s.payload() {
			fmt.Fprintf(flows[flow], "%d:%02x ", s.seq()+uint32(i), b)
		}
		if flags := s.flags() &^ ack; flags != 0 || len(s.payload()) == 0 {
			fmt.Fprintf(flows[flow], "%v;", flags)
		}
	}
	out := map[uint16]string{}
	for flow, text := range flows {
		out[flow] = text.String()
	}
	return out
}

func TestWhatIsJoinedAndWhatIsNot(t *testing.T) {
	full := make([]byte, 1000)
	at := func(seq uint32, change func(*tcpSpec)) []byte {
		s := tcpSpec{flow: 1, seq: seq, flags: ack, window: 9, payload: full}
		if change != nil {
			change(&s)
		}
		return s.packet()
	}
	tests := map[string]struct {
		in   [][]byte
		want []int // payload sizes of what goes up
	}{
		"three in order":                     {[][]byte{at(0, nil), at(1000, nil), at(2000, nil)}, []int{3000}},
		"sequence numbers wrap around":       {[][]byte{at(0xfffffc18, nil), at(0, nil)}, []int{2000}},
		"a gap":                              {[][]byte{at(0, nil), at(1001, nil)}, []int{1000, 1000}},
		"out of order":                       {[][]byte{at(1000, nil), at(0, nil)}, []int{1000, 1000}},
		"the last is shorter":                {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.payload = full[:10] })}, []int{1010}},
		"a longer one does not fit":          {[][]byte{at(0, func(s *tcpSpec) { s.payload = full[:10] }), at(10, nil)}, []int{10, 1000}},
		"a push ends":                        {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.flags |= psh }), at(2000, nil)}, []int{2000, 1000}},
		"other acknowledgement":              {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.ack = 1 })}, []int{1000, 1000}},
		"other window":                       {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.window = 1 })}, []int{1000, 1000}},
		"other options":                      {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.options = []byte{1, 1, 1, 1} })}, []int{1000, 1000}},
		"other type of service":              {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.tos = 3 })}, []int{1000, 1000}},
		"FIN goes alone, in its place":       {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.flags |= fin }), at(2001, nil)}, []int{1000, 1000, 1000}},
		"an acknowledgement keeps its place": {[][]byte{at(0, nil), at(1000, func(s *tcpSpec) { s.payload = nil; s.ack = 7 }), at(1000, nil)}, []int{1000, 0, 1000}},
		"two flows take turns":               {[][]byte{at(0, nil), at(0, func(s *tcpSpec) { s.flow = 2 }), at(1000, nil), at(1000, func(s *tcpSpec) { s.flow = 2 })}, []int{2000, 2000}},
		"IPv4 header broken":                 {[][]byte{at(0, nil), breakIP(at(1000, nil))}, []int{1000, 1000}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, p := range joinAll(test.in) {
				proto, _ := protocolOf(p)
				s, _ := parseTCP(proto, p)
				got = append(got, len(s.payload()))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func breakIP(p []byte) []byte {
	p[10] ^= 1
	return p
}

// What nobody can trust must not crash anything: packets of any bytes.
func FuzzWrite(f *testing.F) {
	f.Add([]byte{}, []byte{0x45})
	f.Add(tcpSpec{flow: 1, flags: ack, payload: []byte("hello")}.packet(), tcpSpec{flow: 1, seq: 5, flags: ack, payload: []byte("world")}.packet())
	f.Add(tcpSpec{v6: true, flow: 1, flags: ack, payload: []byte("hello")}.packet(), udpPacket(addrB4, addrA4, 53, []byte("x"), nil))
	s, err := NewStack(StackOptions{Addresses: prefixes(addrA4, addrA6)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	drained := make(chan struct{})
	go func() { defer close(drained); drain(s) }()
	f.Cleanup(func() { s.Close(); <-drained })
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if _, err := s.Write([][]byte{a, b, a}, 0); err != nil {
			t.Error(err)
		}
	})
}

func drain(s *Stack) {
	bufs, sizes := [][]byte{make([]byte, maxMTU)}, []int{0}
	for {
		if _, err := s.Read(bufs, sizes, 0); err != nil {
			return
		}
	}
}

// The MTU becomes smaller while large segments wait: what is read obeys the new one.
func TestQueuedSegmentsObeyANewMTU(t *testing.T) {
	s := newTestStack(t, StackOptions{Addresses: prefixes(addrA4), MTU: 9000})
	if !s.link.queue.push(tcpSpec{flow: 1, flags: ack, payload: make([]byte, 30000)}.segment(8960), 4) {
		t.Fatal("the queue is closed")
	}
	if err := s.SetMTU(1280); err != nil {
		t.Fatal(err)
	}
	bufs, sizes := make([][]byte, 5), make([]int, 5)
	for i := range bufs {
		bufs[i] = make([]byte, 9000)
	}
	var seen []int
	for len(seen) < 25 { // 30000 in parts of 1240, read five at a time
		n, err := s.Read(bufs, sizes, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if !isValid(bufs[i][:sizes[i]]) {
				t.Fatalf("packet %d is not valid", len(seen))
			}
			seen = append(seen, sizes[i])
		}
	}
	want := append(slices.Repeat([]int{1280}, 24), 40+30000-24*1240)
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}
