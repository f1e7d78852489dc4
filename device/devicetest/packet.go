package devicetest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
)

const (
	packetMagic = 0x5374696c6c776972 // begins the payload
	packetPort  = 5001
	udpLen      = 8
	bodyLen     = 16 // magic and sequence number
)

// MinPacket returns the least size that Packet can make for this family.
func MinPacket(dst netip.Addr) int { return ipLen(dst) + udpLen + bodyLen }

func ipLen(a netip.Addr) int {
	if a.Is4() {
		return 20
	}
	return 40
}

// Packet returns an IP packet of size bytes that carries a sequence number in a UDP datagram,
// with right checksums. A size that is too small is raised to MinPacket. src and dst must be
// of one family.
func Packet(src, dst netip.Addr, seq uint64, size int) []byte {
	if src.Is4() != dst.Is4() {
		panic(fmt.Sprintf("devicetest: packet from %s to %s mixes families", src, dst))
	}
	p := make([]byte, max(size, MinPacket(dst)))
	header := ipLen(dst)
	if dst.Is4() {
		putIPv4(p, src, dst)
	} else {
		putIPv6(p, src, dst)
	}
	udp := p[header:]
	binary.BigEndian.PutUint16(udp[0:], packetPort)
	binary.BigEndian.PutUint16(udp[2:], packetPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint64(udp[8:], packetMagic)
	binary.BigEndian.PutUint64(udp[16:], seq)
	binary.BigEndian.PutUint16(udp[6:], udpChecksum(src, dst, udp))
	return p
}

func putIPv4(p []byte, src, dst netip.Addr) {
	p[0] = 4<<4 | 5
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[8], p[9] = 64, 17
	copy(p[12:], src.AsSlice())
	copy(p[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(p[10:], ^fold(sum(p[:20])))
}

func putIPv6(p []byte, src, dst netip.Addr) {
	p[0] = 6 << 4
	binary.BigEndian.PutUint16(p[4:], uint16(len(p)-40))
	p[6], p[7] = 17, 64
	copy(p[8:], src.AsSlice())
	copy(p[24:], dst.AsSlice())
}

// udpChecksum is that of RFC 768 and RFC 8200 section 8.1.
func udpChecksum(src, dst netip.Addr, udp []byte) uint16 {
	s := sum(src.AsSlice()) + sum(dst.AsSlice()) + 17 + uint64(len(udp)) + sum(udp)
	if c := ^fold(s); c != 0 {
		return c
	}
	return 0xffff
}

func sum(b []byte) (s uint64) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// Seq returns the sequence number of a packet that Packet made, and false for all others.
// A packet that was changed on its way, but for its TTL, is none of them.
func Seq(p []byte) (uint64, bool) {
	src, dst, ok := Addrs(p)
	if !ok || len(p) < MinPacket(dst) {
		return 0, false
	}
	udp := p[ipLen(dst):]
	if binary.BigEndian.Uint16(udp[2:]) != packetPort || binary.BigEndian.Uint64(udp[8:]) != packetMagic {
		return 0, false
	}
	if int(binary.BigEndian.Uint16(udp[4:])) != len(udp) || !validChecksum(src, dst, udp) {
		return 0, false
	}
	return binary.BigEndian.Uint64(udp[16:]), true
}

func validChecksum(src, dst netip.Addr, udp []byte) bool {
	return fold(sum(src.AsSlice())+sum(dst.AsSlice())+17+uint64(len(udp))+sum(udp)) == 0xffff
}

// Addrs returns source and destination of an IP packet, and false when it is none.
func Addrs(p []byte) (src, dst netip.Addr, ok bool) {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:])), true
	case len(p) >= 40 && p[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:])), true
	}
	return src, dst, false
}

// Tally counts packets by sequence number. The zero value is ready; it may be used from any
// goroutine.
type Tally struct {
	mu    sync.Mutex
	seen  map[uint64]int
	other int
}

// Add counts a packet; it fits TUN.Handle.
func (t *Tally) Add(packet []byte) {
	seq, ok := Seq(packet)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok {
		t.other++
		return
	}
	if t.seen == nil {
		t.seen = make(map[uint64]int)
	}
	t.seen[seq]++
}

// Count returns how many different sequence numbers came.
func (t *Tally) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seen)
}

// Missing returns the numbers from first to last, both included, that did not come.
func (t *Tally) Missing(first, last uint64) (missing []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for seq := first; seq <= last; seq++ {
		if t.seen[seq] == 0 {
			missing = append(missing, seq)
		}
	}
	return missing
}

// Doubles returns how many packets came more often than once.
func (t *Tally) Doubles() (doubles int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.seen {
		doubles += n - 1
	}
	return doubles
}

// Others returns how many packets were not made by Packet, or were damaged.
func (t *Tally) Others() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.other
}
