package device

import (
	"encoding/binary"
	"net"

	"golang.zx2c4.com/wireguard/tun"
)

// ownedTUN keeps a TUN's up and down from wireguard-go, which would open its UDP port before
// it is configured, and throw away every session when somebody sets the link down and up.
type ownedTUN struct {
	tun.Device
	events chan tun.Event
}

func newOwnedTUN(t tun.Device) *ownedTUN { return &ownedTUN{t, make(chan tun.Event)} }

// kernelIndex returns the index of the interface that a TUN of the kernel is, and 0 for others:
// only those of the kernel have a file.
func kernelIndex(t tun.Device) uint32 {
	if t.File() == nil {
		return 0
	}
	name, err := t.Name()
	if err != nil {
		return 0
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0 // it is in another network namespace, or gone
	}
	return uint32(i.Index)
}

// Events gives the events that forward lets pass.
func (t *ownedTUN) Events() <-chan tun.Event { return t.events }

// forward passes on changes of the MTU until the TUN is closed. wireguard-go reads for as long.
func (t *ownedTUN) forward() {
	defer close(t.events)
	for e := range t.Device.Events() {
		if e &= tun.EventMTUUpdate; e != 0 {
			t.events <- e
		}
	}
}

// Read reads what the kernel sends, with the one checksum set right that wireguard-go's TUN
// computes wrong where the kernel leaves it to the card.
func (t *ownedTUN) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	n, err := t.Device.Read(bufs, sizes, offset)
	for i := range n {
		mendZeroChecksum(bufs[i][offset:][:sizes[i]])
	}
	return n, err
}

const (
	ipv6HeaderLen   = 40
	udpHeaderLen    = 8
	protocolUDP     = 17
	udpChecksumFrom = ipv6HeaderLen + 6
)

// mendZeroChecksum makes the checksum of an IPv6 datagram ffff where it was computed as zero,
// as one in 65,536 is. Zero says that there is none, and then IPv6 drops the datagram (RFC
// 768, RFC 8200 section 8.1). One that is zero on purpose stays so.
func mendZeroChecksum(packet []byte) {
	if len(packet) < ipv6HeaderLen+udpHeaderLen || packet[0]>>4 != 6 || packet[6] != protocolUDP {
		return
	}
	length := binary.BigEndian.Uint16(packet[4:])
	checksum := packet[udpChecksumFrom:][:2]
	if checksum[0]|checksum[1] != 0 || int(length) != len(packet)-ipv6HeaderLen {
		return
	}
	sum := uint64(length) + protocolUDP
	for b := packet[8:]; len(b) > 0; b = b[min(2, len(b)):] {
		sum += uint64(b[0]) << 8
		if len(b) > 1 {
			sum += uint64(b[1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum == 0xffff {
		checksum[0], checksum[1] = 0xff, 0xff
	}
}
