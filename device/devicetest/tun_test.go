package devicetest

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.zx2c4.com/wireguard/tun"
)

func TestTUNPassesPackets(t *testing.T) {
	dev := NewTUN(1420)
	if e := <-dev.Events(); e != tun.EventUp {
		t.Errorf("first event %d, want EventUp", e)
	}
	if err := dev.Inject([]byte("one"), []byte("two")); err != nil {
		t.Fatal(err)
	}
	bufs, sizes := [][]byte{make([]byte, 20), make([]byte, 20), make([]byte, 20)}, make([]int, 3)
	n, err := dev.Read(bufs, sizes, 4)
	if n != 2 || err != nil || string(bufs[0][4:4+sizes[0]]) != "one" || string(bufs[1][4:4+sizes[1]]) != "two" {
		t.Errorf("read %d, %v, %q", n, err, bufs)
	}
	if n, err := dev.Write([][]byte{[]byte("....three"), []byte("....four")}, 4); n != 2 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if a, b := string(<-dev.Packets()), string(<-dev.Packets()); a != "three" || b != "four" {
		t.Errorf("got %s and %s", a, b)
	}
	var handled []string
	dev.Handle(func(p []byte) { handled = append(handled, string(p)) })
	dev.Write([][]byte{[]byte("five")}, 0)
	dev.Handle(nil)
	if !slices.Equal(handled, []string{"five"}) || len(dev.Packets()) != 0 {
		t.Errorf("handled %q, %d in the channel", handled, len(dev.Packets()))
	}
	dev.SetMTU(1280)
	if mtu, _ := dev.MTU(); mtu != 1280 || <-dev.Events() != tun.EventMTUUpdate {
		t.Errorf("MTU %d, and no event of it", mtu)
	}
	for range tunQueue + 3 {
		dev.Write([][]byte{{1}}, 0)
	}
	if dev.Drops() != 3 {
		t.Errorf("%d drops, want 3", dev.Drops())
	}
}

func TestTUNClosesFromAnywhere(t *testing.T) {
	for range 100 {
		dev := NewTUN(1420)
		var wg sync.WaitGroup
		for _, f := range []func() error{
			func() error { _, err := dev.Read([][]byte{make([]byte, 9)}, make([]int, 1), 0); return err },
			func() error {
				for {
					if err := dev.Inject([]byte{1}); err != nil {
						return err
					}
				}
			},
			func() error {
				for {
					if _, err := dev.Write([][]byte{{1}}, 0); err != nil {
						return err
					}
				}
			},
		} {
			wg.Go(func() {
				err := f()
				for err == nil {
					err = f()
				}
				if !errors.Is(err, os.ErrClosed) {
					t.Errorf("got %v, want os.ErrClosed", err)
				}
			})
		}
		wg.Go(func() {
			for range 50 {
				dev.Event(tun.EventDown)
			}
		})
		wg.Go(func() { dev.Close() })
		wg.Go(func() { dev.Close() })
		wg.Wait()
		for range dev.Events() { // it is closed
		}
	}
}

func TestPacketsCarryTheirNumber(t *testing.T) {
	for _, pair := range [][2]string{{"10.9.0.1", "10.9.0.2"}, {"fd00::1", "fd00::2"}} {
		src, dst := netip.MustParseAddr(pair[0]), netip.MustParseAddr(pair[1])
		for _, size := range []int{0, MinPacket(dst), 101, 1420, 65535} {
			p := Packet(src, dst, 1<<63+uint64(size), size)
			seq, ok := Seq(p)
			gotSrc, gotDst, _ := Addrs(p)
			if !ok || seq != 1<<63+uint64(size) || len(p) != max(size, MinPacket(dst)) || gotSrc != src || gotDst != dst {
				t.Errorf("size %d: got number %d (%t), %d bytes from %s to %s", size, seq, ok, len(p), gotSrc, gotDst)
			}
			if dst.Is4() && fold(sum(p[:20])) != 0xffff {
				t.Errorf("size %d: wrong IPv4 checksum", size)
			}
			for _, i := range []int{12, len(p) - 1} {
				damaged := slices.Clone(p)
				damaged[i] ^= 1
				if _, ok := Seq(damaged); ok {
					t.Errorf("size %d: a packet damaged at byte %d is taken for whole", size, i)
				}
			}
			if _, ok := Seq(p[:len(p)-1]); ok {
				t.Errorf("size %d: a truncated packet is taken for whole", size)
			}
		}
	}
	for _, junk := range [][]byte{nil, {0x45}, make([]byte, 100), slices.Repeat([]byte{0x45}, 100), slices.Repeat([]byte{0x60}, 100)} {
		if _, ok := Seq(junk); ok {
			t.Errorf("junk is taken for a packet: %x", junk)
		}
	}
}

func TestTally(t *testing.T) {
	src, dst := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	var tally Tally
	for _, seq := range []uint64{1, 2, 4, 4, 4, 9} {
		tally.Add(Packet(src, dst, seq, 0))
	}
	tally.Add([]byte("junk"))
	if got := tally.Missing(1, 5); !slices.Equal(got, []uint64{3, 5}) {
		t.Errorf("missing %v, want 3 and 5", got)
	}
	if tally.Count() != 4 || tally.Doubles() != 2 || tally.Others() != 1 {
		t.Errorf("count %d, doubles %d, others %d, want 4, 2, 1", tally.Count(), tally.Doubles(), tally.Others())
	}
}
