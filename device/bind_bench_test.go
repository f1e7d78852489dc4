//go:build unix

package device

import (
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// BenchmarkBind sends batches from one bind to another over loopback, ours and upstream's by
// turns in one run, and reports the datagrams per second of each, and the CPU time of both
// ends per gigabit. Only the ratios mean something on a busy machine.
func BenchmarkBind(b *testing.B) {
	for _, bc := range []struct {
		name  string
		size  int
		batch int
	}{
		{"full packets, full batches", 1452, 128},
		{"full packets, batches of 16", 1452, 16},
		{"small packets, full batches", 128, 128},
		{"single packets", 1452, 1},
	} {
		b.Run(bc.name, func(b *testing.B) {
			ours := newBenchPair(b, NewBind(BindOptions{}), NewBind(BindOptions{}))
			upstream := newBenchPair(b, conn.NewStdNetBind(), conn.NewStdNetBind())
			bufs := slices.Repeat([][]byte{make([]byte, bc.size)}, bc.batch)
			const turn = 2000 // datagrams
			n := 0
			for b.Loop() {
				ours.run(b, bufs, turn)
				upstream.run(b, bufs, turn)
				n += turn
			}
			gigabits := float64(n) * float64(bc.size) * 8 / 1e9
			b.ReportMetric(float64(n)/ours.wall.Seconds(), "ours/s")
			b.ReportMetric(float64(n)/upstream.wall.Seconds(), "upstream/s")
			b.ReportMetric(upstream.wall.Seconds()/ours.wall.Seconds(), "speed-ratio")
			b.ReportMetric(ours.cpu.Seconds()/gigabits, "ours-cpu-s/Gbit")
			b.ReportMetric(upstream.cpu.Seconds()/ours.cpu.Seconds(), "cpu-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// benchPair is a sender, and a receiver that counts.
type benchPair struct {
	from      conn.Bind
	ep        conn.Endpoint
	got       atomic.Int64
	sent      int64
	room      chan struct{} // size one: got moved
	wall, cpu time.Duration
}

func newBenchPair(b *testing.B, from, to conn.Bind) *benchPair {
	b.Helper()
	p := &benchPair{from: from, room: make(chan struct{}, 1)}
	fns, port, err := to.Open(0)
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := from.Open(0); err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{}, len(fns))
	for _, fn := range fns {
		go func() {
			p.receive(fn, to.BatchSize())
			done <- struct{}{}
		}()
	}
	b.Cleanup(func() {
		from.Close()
		to.Close()
		for range fns {
			<-done
		}
	})
	if p.ep, err = from.ParseEndpoint(netip.AddrPortFrom(loopbacks[0], port).String()); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *benchPair) receive(fn conn.ReceiveFunc, batch int) {
	packets, sizes, eps := make([][]byte, batch), make([]int, batch), make([]conn.Endpoint, batch)
	for i := range packets {
		packets[i] = make([]byte, 1<<16-1) // as wireguard-go's
	}
	for {
		n, err := fn(packets, sizes, eps)
		if err != nil {
			return
		}
		for _, size := range sizes[:n] {
			if size > 0 {
				p.got.Add(1)
			}
		}
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
}

// run sends n datagrams, at most 1024 under way, and waits for them. What is lost ends the
// benchmark by its time limit: the window fits into the socket's buffer.
func (p *benchPair) run(b *testing.B, bufs [][]byte, n int) {
	b.Helper()
	const window = 1024
	start, cpu := time.Now(), cpuTime()
	for end := p.sent + int64(n); p.sent < end; {
		some := bufs[:min(len(bufs), int(end-p.sent))]
		if err := p.from.Send(some, p.ep); err != nil {
			b.Fatal(err)
		}
		p.sent += int64(len(some))
		for p.sent-p.got.Load() > window || (p.sent == end && p.got.Load() < end) {
			<-p.room
		}
	}
	p.wall += time.Since(start)
	p.cpu += cpuTime() - cpu
}

// cpuTime is what the process used so far; the other pair is idle meanwhile.
func cpuTime() time.Duration {
	runtime.Gosched()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
