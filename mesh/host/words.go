//go:build linux

package host

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The words that rules of the firewall are made of. Each leaves what it compares in register 1.

func join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }

func equal(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

func network(offset, n uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: n}
}

func transport(offset, n uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: n}
}

func iif(link string, op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: linkName(link)}}
}

// linkName is compared with the whole of what the kernel keeps.
func linkName(name string) []byte {
	return append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)
}

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func isIn(set string) []expr.Any { return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: set}} }

func notIn(set string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: set, Invert: true}}
}

func protocol(n byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{n})}
}

func udp() []expr.Any { return protocol(unix.IPPROTO_UDP) }

// Where ports are in a UDP header.
const (
	srcPort = 0
	dstPort = 2
)

func port(offset uint32) []expr.Any { return []expr.Any{transport(offset, 2)} }

// isLocal is for packets to an address of the machine.
func isLocal() []expr.Any {
	return []expr.Any{&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true}, equal(native32(unix.RTN_LOCAL))}
}

// wayBack is for packets whose answer would leave by the link that they came by.
func wayBack() []expr.Any {
	return []expr.Any{&expr.Fib{Register: 1, ResultOIF: true, FlagPRESENT: true, FlagSADDR: true, FlagIIF: true}, equal([]byte{1})}
}

func marked(mark uint32) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, equal(native32(mark))}
}

func setMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: native32(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// clampMSS sets the segment size of a TCP SYN to what the routes of both ways carry.
func clampMSS() []expr.Any {
	const flags, syn, synRst, maxSegment = 13, 2, 6, 2
	return join(protocol(unix.IPPROTO_TCP), []expr.Any{
		transport(flags, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{synRst}, Xor: []byte{0}},
		equal([]byte{syn}),
		&expr.Rt{Register: 1, Key: expr.RtTCPMSS},
		&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 2, Size: 2},
		&expr.Exthdr{SourceRegister: 1, Type: maxSegment, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt},
	})
}

func notrack() []expr.Any    { return []expr.Any{&expr.Notrack{}} }
func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }
func accept() []expr.Any     { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// drop counts: who looks for lost packets finds them in nft list ruleset.
func counted() []expr.Any { return []expr.Any{&expr.Counter{}} }

func drop() []expr.Any { return join(counted(), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}) }
