package netstack

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// udpPacket is a UDP datagram over IPv4; change, if any, breaks it after its checksums
// were made.
func udpPacket(from, to netip.Addr, port uint16, payload []byte, change func([]byte)) []byte {
	p := make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize+len(payload))
	ip, udp := header.IPv4(p), header.UDP(p[header.IPv4MinimumSize:])
	src, dst := tcpip.AddrFrom4(from.As4()), tcpip.AddrFrom4(to.As4())
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(p)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber), SrcAddr: src, DstAddr: dst})
	udp.Encode(&header.UDPFields{SrcPort: 1000, DstPort: port, Length: uint16(len(udp))})
	copy(udp.Payload(), payload)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, src, dst, uint16(len(udp)))
	udp.SetChecksum(^udp.CalculateChecksum(checksum.Checksum(payload, sum)))
	fixHeader(p)
	if change != nil {
		change(p)
	}
	return p
}

// fixHeader makes the IPv4 header's checksum right again.
func fixHeader(p []byte) {
	ip := header.IPv4(p)
	ip.SetChecksum(0)
	ip.SetChecksum(^ip.CalculateChecksum())
}
