//go:build linux

package host

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// fussy refuses packets that come together.
type fussy struct {
	tun.Device
	writes []int // how many packets each write had
}

func (f *fussy) Write(bufs [][]byte, _ int) (int, error) {
	f.writes = append(f.writes, len(bufs))
	if len(bufs) > 1 {
		return 0, errors.Join(unix.EINVAL)
	}
	return len(bufs[0]), nil
}

func TestRefusedOffloadCostsOneBatch(t *testing.T) {
	dev := &fussy{}
	tun := &TUN{current: dev}
	batch := [][]byte{{1}, {2}, {3}}
	if _, err := tun.Write(batch[:1], 0); err != nil {
		t.Errorf("one packet: %v", err)
	}
	if _, err := tun.Write(batch, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("the first batch: %v", err)
	}
	if n, err := tun.Write(batch, 0); n != 3 || err != nil {
		t.Errorf("the second batch: %d, %v", n, err)
	}
	if len(dev.writes) != 5 {
		t.Errorf("writes of %v packets", dev.writes)
	}
}
