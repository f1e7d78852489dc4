package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// halfPipe is an end of an in-memory connection that can be half-closed, and tells how it
// was closed.
type halfPipe struct {
	net.Conn // reads and addresses
	out      net.Conn
	aborted  chan struct{}
	once     sync.Once
}

// newHalfPipe joins two ends by a pipe for each direction.
func newHalfPipe() (a, b *halfPipe) {
	r1, w1 := net.Pipe()
	r2, w2 := net.Pipe()
	return &halfPipe{Conn: r1, out: w2, aborted: make(chan struct{})}, &halfPipe{Conn: r2, out: w1, aborted: make(chan struct{})}
}

func (p *halfPipe) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *halfPipe) CloseWrite() error           { return p.out.Close() }
func (p *halfPipe) Close() error                { p.out.Close(); return p.Conn.Close() }
func (p *halfPipe) Abort() error                { p.once.Do(func() { close(p.aborted) }); return p.Close() }

func (p *halfPipe) isAborted() bool {
	select {
	case <-p.aborted:
		return true
	default:
		return false
	}
}

func TestIdleIsCountedFromTheLastByteEitherWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, a := newHalfPipe()
		b, target := newHalfPipe()
		began := time.Now()
		done := make(chan error)
		go func() {
			_, err := Relay(context.Background(), a, b, RelayOptions{IdleTimeout: time.Minute})
			done <- err
		}()
		buf := make([]byte, 1)
		for i := range 10 {
			<-time.After(59 * time.Second)
			from, to := client, target
			if i%2 == 1 {
				from, to = target, client
			}
			go from.Write([]byte("x"))
			if _, err := io.ReadFull(to, buf); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; !errors.Is(err, ErrIdle) {
			t.Errorf("Relay returned %v, want %v", err, ErrIdle)
		}
		if got, want := time.Since(began), 10*59*time.Second+time.Minute; got != want {
			t.Errorf("was cut after %s, want %s", got, want)
		}
		if !a.isAborted() || !b.isAborted() {
			t.Error("an idle flow is to be reset on both sides")
		}
	})
}

func TestHalfClosedFlowDoesNotWaitForever(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       RelayOptions
		answers int // of the side that goes on, one every 50 minutes
		want    time.Duration
	}{
		{"silent", RelayOptions{}, 0, time.Hour},
		{"goes on", RelayOptions{}, 10, 500*time.Minute + time.Hour},
		{"idle before that", RelayOptions{IdleTimeout: time.Minute}, 0, time.Minute},
		{"its own time", RelayOptions{HalfClosedTimeout: time.Second}, 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, a := newHalfPipe()
			b, target := newHalfPipe()
			began := time.Now()
			client.CloseWrite()
			go func() {
				for range c.answers {
					<-time.After(50 * time.Minute)
					target.Write([]byte("x"))
				}
			}()
			go io.Copy(io.Discard, client)
			_, err := Relay(context.Background(), a, b, c.o)
			if got := time.Since(began); !errors.Is(err, ErrIdle) || got != c.want {
				t.Errorf("%s: cut after %s by %v, want %s", c.name, got, err, c.want)
			}
		})
	}
}

func TestRelayWithoutIdleTimeoutLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, a := newHalfPipe()
		b, target := newHalfPipe()
		done := make(chan error)
		var traffic Traffic
		go func() {
			var err error
			traffic, err = Relay(context.Background(), a, b, RelayOptions{})
			done <- err
		}()
		<-time.After(1000 * time.Hour)
		client.Write([]byte("abc"))
		io.ReadFull(target, make([]byte, 3))
		client.CloseWrite()
		if rest, err := io.ReadAll(target); len(rest) != 0 || err != nil {
			t.Errorf("target got %q and %v", rest, err)
		}
		go func() { target.Write([]byte("defgh")); target.CloseWrite() }()
		if rest, err := io.ReadAll(client); string(rest) != "defgh" || err != nil {
			t.Errorf("client got %q and %v", rest, err)
		}
		if err := <-done; err != nil || traffic != (Traffic{AToB: 3, BToA: 5}) {
			t.Errorf("Relay returned %v and %+v", err, traffic)
		}
		if a.isAborted() || b.isAborted() {
			t.Error("a flow that ended in order was reset")
		}
	})
}

func TestRelayToASideWithoutHalfClose(t *testing.T) {
	client, a := newHalfPipe()
	b, target := net.Pipe()
	done := make(chan error)
	go func() {
		_, err := Relay(context.Background(), a, b, RelayOptions{})
		done <- err
	}()
	go func() { client.Write([]byte("question")); client.CloseWrite() }()
	io.ReadFull(target, make([]byte, 8))
	go func() { target.Write([]byte("answer")); target.Close() }()
	if got, err := io.ReadAll(client); string(got) != "answer" || err != nil {
		t.Errorf("client got %q and %v", got, err)
	}
	if err := <-done; err != nil {
		t.Errorf("Relay returned %v", err)
	}
}

func TestRelayEndsWithItsContext(t *testing.T) {
	client, a := newHalfPipe()
	b, target := newHalfPipe()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Relay(ctx, a, b, RelayOptions{}); !errors.Is(err, why) {
		t.Errorf("Relay returned %v, want %v", err, why)
	}
	client.Close()
	target.Close()
	if !a.isAborted() || !b.isAborted() {
		t.Error("both sides are to be reset")
	}
}

func TestBuffersGrowWithTheFlowAndShrinkAgain(t *testing.T) {
	var p Buffers
	b := p.get(1)
	for _, step := range []struct{ filled, next int }{
		{1, smallBuffer}, {smallBuffer - 1, smallBuffer}, {smallBuffer, largeBuffer}, {largeBuffer, largeBuffer},
		{smallBuffer, largeBuffer}, {smallBuffer - 1, smallBuffer},
	} {
		if b = p.next(b, step.filled); len(b) != step.next {
			t.Errorf("after a read of %d bytes: buffer of %d, want %d", step.filled, len(b), step.next)
		}
	}
}

func BenchmarkRelay(b *testing.B) {
	ctx := context.Background()
	near, far := tcpPair(b)
	a, z := tcpPair(b)
	done := make(chan struct{})
	go func() { defer close(done); Relay(ctx, far, a, RelayOptions{}) }()
	chunk := make([]byte, 256<<10)
	b.SetBytes(int64(len(chunk)))
	go func() {
		for range b.N {
			near.Write(chunk)
		}
		CloseWrite(near)
	}()
	b.ResetTimer()
	io.Copy(struct{ io.Writer }{io.Discard}, z)
	z.Close()
	near.Close()
	<-done
}

func tcpPair(t testing.TB) (a, b net.Conn) {
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer ln.Close()
	a = must[net.Conn](t)(net.Dial("tcp", ln.Addr().String()))
	return a, must[net.Conn](t)(ln.Accept())
}
