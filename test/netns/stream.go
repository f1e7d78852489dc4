//go:build linux

package netns

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// StreamReport is what became of a TCP connection that carried bytes both ways.
type StreamReport struct {
	Bytes       int64 // each way
	Retransmits uint32
	Needless    uint32 // retransmits of what had arrived (RFC 2883): late, not lost
}

// String is one line.
func (r StreamReport) String() string {
	return fmt.Sprintf("%d KiB each way, %d retransmits, %d of them needless", r.Bytes>>10, r.Retransmits, r.Needless)
}

// Exchange sends bytes both ways over one TCP connection, at a pace of bytes a second when
// that is not 0, until size bytes went each way or, with size 0, until ctx ends. Then each end
// closes its half. The error tells of a connection that broke, or carried what was not sent.
func Exchange(ctx context.Context, from, to *Namespace, dst netip.AddrPort, size int64, pace int) (StreamReport, error) {
	a, b, err := dial(from, to, dst)
	if err != nil {
		return StreamReport{}, err
	}
	defer a.Close()
	defer b.Close()
	var there, back, gotThere, gotBack half
	var both sync.WaitGroup
	both.Go(func() { there.write(ctx, a, size, pace) })
	both.Go(func() { back.write(ctx, b, size, pace) })
	both.Go(func() { gotThere.read(b) })
	both.Go(func() { gotBack.read(a) })
	both.Wait()
	r := StreamReport{Bytes: there.n}
	r.count(a)
	r.count(b)
	return r, errors.Join(there.compare(gotThere), back.compare(gotBack))
}

func dial(from, to *Namespace, dst netip.AddrPort) (a, b *net.TCPConn, err error) {
	var l *net.TCPListener
	err = to.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(dst))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	dialer := net.Dialer{Timeout: 10 * time.Second}
	err = from.Do(func() error {
		c, err := dialer.Dial("tcp", l.Addr().String())
		if err == nil {
			a = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	b, err = l.AcceptTCP()
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// half is one direction as one end saw it.
type half struct {
	n   int64
	sum hash.Hash
	err error
}

const chunk = 16 << 10

func (h *half) write(ctx context.Context, c *net.TCPConn, size int64, pace int) {
	h.sum = sha256.New()
	defer c.CloseWrite()
	var tick *time.Ticker
	if pace > 0 {
		tick = time.NewTicker(time.Duration(chunk) * time.Second / time.Duration(pace))
		defer tick.Stop()
	}
	b := make([]byte, chunk)
	random := rand.NewChaCha8([32]byte{})
	for (size == 0 || h.n < size) && ctx.Err() == nil {
		if tick != nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		if size > 0 {
			b = b[:min(chunk, size-h.n)]
		}
		random.Read(b)
		if _, h.err = c.Write(b); h.err != nil {
			return
		}
		h.sum.Write(b)
		h.n += int64(len(b))
	}
}

func (h *half) read(c *net.TCPConn) {
	h.sum = sha256.New()
	h.n, h.err = io.Copy(h.sum, c)
}

func (h *half) compare(got half) error {
	if err := errors.Join(h.err, got.err); err != nil {
		return err
	}
	if h.n != got.n || string(h.sum.Sum(nil)) != string(got.sum.Sum(nil)) {
		return fmt.Errorf("sent %d bytes and received %d, or others", h.n, got.n)
	}
	return nil
}

// count adds what the system tells of one end.
func (r *StreamReport) count(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			r.Retransmits += info.Total_retrans
			r.Needless += info.Dsack_dups
		}
	})
}
