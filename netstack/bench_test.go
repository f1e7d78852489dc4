package netstack

import (
	"io"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
	"golang.zx2c4.com/wireguard/conn"
)

// BenchmarkTCP sends over real wireguard-go devices on loopback, in turns with our stack and
// Bind and with upstream's, and reports Gbit/s, CPU seconds per Gbit (both ends) and the ratio of the two.
//
//	go test -bench TCP -benchtime 20x ./netstack
func BenchmarkTCP(b *testing.B) {
	for _, streams := range []int{1, 4, 16} {
		b.Run(map[int]string{1: "1 stream", 4: "4 streams", 16: "16 streams"}[streams], func(b *testing.B) {
			us, them := benchOurs(b), benchUpstream(b)
			const perStep = 64 << 20
			b.SetBytes(perStep)
			var ours, upstream usage
			for b.Loop() {
				ours.add(us.send(b, streams, perStep))
				b.StopTimer()
				upstream.add(them.send(b, streams, perStep))
				b.StartTimer()
			}
			bits := float64(b.N) * perStep * 8 / 1e9
			b.ReportMetric(bits/ours.wall.Seconds(), "Gbit/s")
			b.ReportMetric(bits/upstream.wall.Seconds(), "upstream-Gbit/s")
			b.ReportMetric(ours.cpu.Seconds()/bits, "CPU-s/Gbit")
			b.ReportMetric(upstream.cpu.Seconds()/bits, "upstream-CPU-s/Gbit")
			b.ReportMetric(upstream.wall.Seconds()/ours.wall.Seconds(), "x-upstream")
		})
	}
}

type usage struct{ wall, cpu time.Duration }

func (u *usage) add(v usage) { u.wall, u.cpu = u.wall+v.wall, u.cpu+v.cpu }

type benchRig struct{ a, b talker }

func benchOurs(b *testing.B) benchRig {
	x := newTestStack(b, StackOptions{Addresses: prefixes(addrA4, addrA6)})
	y := newTestStack(b, StackOptions{Addresses: prefixes(addrB4, addrB6)})
	tunnelOver(b, func() conn.Bind { return device.NewBind(device.BindOptions{}) }, x, y)
	return benchRig{ours{x}, ours{y}}
}

func benchUpstream(b *testing.B) benchRig {
	x, nx := newUpstream(b, addrA4, addrA6)
	y, ny := newUpstream(b, addrB4, addrB6)
	tunnel(b, x, y)
	return benchRig{upstreamTalker{nx}, upstreamTalker{ny}}
}

// send carries total bytes over fresh streams and says what that took.
func (r benchRig) send(b *testing.B, streams, total int) usage {
	b.Helper()
	benchPort++
	to := netip.AddrPortFrom(addrB4, benchPort)
	l, err := r.b.listenTCP(to)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	cpu, start := cpuTime(b), time.Now()
	var group sync.WaitGroup
	for range streams {
		group.Go(func() {
			c, err := l.Accept()
			if err == nil {
				_, err = io.Copy(io.Discard, c)
				c.Close()
			}
			if err != nil {
				b.Error(err)
			}
		})
		group.Go(func() {
			if err := r.stream(b, to, total/streams); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	return usage{time.Since(start), cpuTime(b) - cpu}
}

var benchPort uint16 = 1000

func (r benchRig) stream(b *testing.B, to netip.AddrPort, n int) error {
	c, err := r.a.dialTCP(testContext(b), to)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 128<<10)
	for ; n > 0; n -= len(buf) {
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	_, err = c.Read(buf)
	if err == io.EOF {
		err = nil
	}
	return err
}

func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
