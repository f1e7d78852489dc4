// Package talk is what the tests say over a tunnel, from either end and whatever stack the
// end has: HTTP with checksums, UDP echoes, pings.
package talk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Ports on which Serve listens.
const (
	HTTPPort = 80
	EchoPort = 7
)

// sumTrailer holds the SHA-256 of a body, which is known when it has been sent.
const sumTrailer = "Body-Sha256"

// Stack is a TCP/IP stack in a tunnel.
type Stack struct {
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	ListenTCP func(*net.TCPAddr) (net.Listener, error)
	ListenUDP func(*net.UDPAddr) (net.PacketConn, error)
	// Ping returns when one echo request was answered.
	Ping func(ctx context.Context, addr netip.Addr) error
}

// Serve answers HTTP and echoes UDP until wait's caller has closed the stack, or close is
// called. Both return when everything has ended.
func Serve(s Stack) (stop func(), err error) {
	web, err := s.ListenTCP(&net.TCPAddr{Port: HTTPPort})
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	echo, err := s.ListenUDP(&net.UDPAddr{Port: EchoPort})
	if err != nil {
		web.Close()
		return nil, fmt.Errorf("listen for UDP: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(answer)}
	var runs sync.WaitGroup
	runs.Go(func() { server.Serve(web) })
	runs.Go(func() { echoUDP(echo) })
	return func() {
		server.Close()
		echo.Close()
		runs.Wait()
	}, nil
}

// answer gives ?n= random bytes on GET, and the sum of what it got on POST.
func answer(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	if r.Method == http.MethodPost {
		if _, err := io.Copy(sum, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		io.WriteString(w, hex.EncodeToString(sum.Sum(nil)))
		return
	}
	n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", sumTrailer)
	if _, err := io.Copy(io.MultiWriter(w, sum), random(n)); err == nil {
		w.Header().Set(sumTrailer, hex.EncodeToString(sum.Sum(nil)))
	}
}

func random(n int64) io.Reader {
	var seed [32]byte
	seed[0] = byte(n)
	return io.LimitReader(rand.NewChaCha8(seed), n)
}

func echoUDP(c net.PacketConn) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		c.WriteTo(b[:n], from)
	}
}

// client speaks HTTP over the stack, one connection a request.
func (s Stack) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}}
}

func (s Stack) do(r *http.Request, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	response, err := s.client().Do(r)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", r.Method, r.URL, response.Status)
	}
	return response, err
}

func url(host netip.Addr) string {
	return "http://" + netip.AddrPortFrom(host, HTTPPort).String() + "/"
}

// Download gets n bytes of the server at host and compares their sum with the server's.
func (s Stack) Download(ctx context.Context, host netip.Addr, n int64) error {
	response, err := s.do(http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?n=%d", url(host), n), nil))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	sum := sha256.New()
	got, err := io.Copy(sum, response.Body)
	if err != nil {
		return fmt.Errorf("download from %s, after %d bytes: %w", host, got, err)
	}
	if want := response.Trailer.Get(sumTrailer); got != n || hex.EncodeToString(sum.Sum(nil)) != want {
		return fmt.Errorf("download from %s: %d bytes of %d, or others", host, got, n)
	}
	return nil
}

// Upload sends n bytes to the server at host, which answers with the sum of what it got.
func (s Stack) Upload(ctx context.Context, host netip.Addr, n int64) error {
	sum := sha256.New()
	response, err := s.do(http.NewRequestWithContext(ctx, http.MethodPost, url(host), io.TeeReader(random(n), sum)))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if want := hex.EncodeToString(sum.Sum(nil)); string(got) != want {
		return fmt.Errorf("upload to %s: it got others than %d bytes that were sent", host, n)
	}
	return nil
}

// echoWait is how long one answer may take.
const echoWait = 10 * time.Second

// Echo has count datagrams of size bytes come back from host, each before the next goes.
func (s Stack) Echo(ctx context.Context, host netip.Addr, count, size int) error {
	c, err := s.Dial(ctx, "udp", netip.AddrPortFrom(host, EchoPort).String())
	if err != nil {
		return err
	}
	defer c.Close()
	sent, got := make([]byte, size), make([]byte, size+1)
	for i := range count {
		io.ReadFull(random(int64(i+size)), sent)
		if err := c.SetReadDeadline(time.Now().Add(echoWait)); err != nil {
			return err
		}
		if _, err := c.Write(sent); err != nil {
			return fmt.Errorf("datagram %d of %d bytes to %s: %w", i, size, host, err)
		}
		n, err := c.Read(got)
		if err != nil {
			return fmt.Errorf("datagram %d of %d bytes from %s: %w", i, size, host, err)
		}
		if string(got[:n]) != string(sent) {
			return fmt.Errorf("datagram %d of %d bytes came back from %s as %d others", i, size, host, n)
		}
	}
	return nil
}
