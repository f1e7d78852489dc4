package mesh

import (
	"encoding/binary"
)

// ProbePort is the UDP port at mesh addresses where agents answer each other.
const ProbePort = 51821

// An echo is a datagram of echoLen bytes:
//
//	0       4   5   6          8          16      24      32
//	"SWpb" | 1 | k | reserved | sequence | nonce | leads |
//
// k is 1 for a request and 2 for its answer, which repeats sequence and nonce. In an answer leads
// is the claim of who answers, as in NodeStatus.Leads: so who has old facts hears of a new leader.
// An answer is as long as the request: nobody gains by making an agent answer somebody else.
const echoLen = 32

// echo is one probe, or its answer.
type echo struct {
	answer   bool
	sequence uint64
	nonce    uint64 // drawn for each target, so that only who sees requests can answer
	leads    uint64 // of an answer
}

func (e echo) append(b []byte) []byte {
	kind := byte(1)
	if e.answer {
		kind = 2
	}
	b = append(b, 'S', 'W', 'p', 'b', 1, kind, 0, 0)
	b = binary.BigEndian.AppendUint64(b, e.sequence)
	b = binary.BigEndian.AppendUint64(b, e.nonce)
	return binary.BigEndian.AppendUint64(b, e.leads)
}

// parseEcho returns false for what is no echo of this version.
func parseEcho(b []byte) (e echo, ok bool) {
	if len(b) != echoLen || string(b[:5]) != "SWpb\x01" || b[5] < 1 || b[5] > 2 {
		return e, false
	}
	return echo{
		answer: b[5] == 2, sequence: binary.BigEndian.Uint64(b[8:]),
		nonce: binary.BigEndian.Uint64(b[16:]), leads: binary.BigEndian.Uint64(b[24:]),
	}, true
}
