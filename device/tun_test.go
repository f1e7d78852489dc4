package device

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// An IPv6 datagram from [fd09::1]:1 to [fd09::2]:2, whose checksum comes out as the last two
// bytes of its payload make it.
func udp6(checksum, payload string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll("60000000 000a 11 40 fd090000000000000000000000000001 fd090000000000000000000000000002 0001 0002 000a "+checksum+payload, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestChecksumOfZeroIsMendedInIPv6(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in, want []byte
	}{
		// all but the payload sums up to fa3e, and 05c1 makes it ffff
		{"it is zero, which means that there is none", udp6("0000", "05c1"), udp6("ffff", "05c1")},
		{"there is none", udp6("0000", "05c0"), udp6("0000", "05c0")},
		{"it is not zero", udp6("0001", "05c0"), udp6("0001", "05c0")},
		{"not UDP", append(udp6("0000", "05c1")[:6], append([]byte{6}, udp6("0000", "05c1")[7:]...)...), append(udp6("0000", "05c1")[:6], append([]byte{6}, udp6("0000", "05c1")[7:]...)...)},
		{"cut short", udp6("0000", "05c1")[:47], udp6("0000", "05c1")[:47]},
		{"length wrong", udp6("0000", "05c1")[:49], udp6("0000", "05c1")[:49]},
		{"IPv4", []byte("\x45 and whatever follows, which is not looked at in any way"), []byte("\x45 and whatever follows, which is not looked at in any way")},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mendZeroChecksum(tt.in)
			if !bytes.Equal(tt.in, tt.want) {
				t.Errorf("got  %x\nwant %x", tt.in, tt.want)
			}
		})
	}
}
