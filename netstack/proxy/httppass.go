package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// errUpgraded ends net/http's part in a request whose connection has become another
// protocol's, and is over.
var errUpgraded = errors.New("connection was upgraded")

// pass serves a request in absolute form.
func (h *httpFlow) pass(w http.ResponseWriter, r *http.Request) {
	if h.lastHop(w, r) {
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	h.booked.Store(false)
	h.heard.late.Store(false)
	idle := startIdle(h.o.IdleTimeout, func() {
		h.booked.Store(true)
		h.s.counts.cut.add(ReasonIdle)
		cancel(ErrIdle)
	})
	h.idle.Store(idle)
	defer idle.stop()

	control := http.NewResponseController(w)
	control.EnableFullDuplex() // a target may answer while the client still sends
	body := &clientBody{ReadCloser: r.Body, control: control, patience: h.o.BodyTimeout}
	if r.Body != http.NoBody {
		r.Body = body
	}
	h.current, h.asked, h.raw = w, upgradeOf(r.Header), nil
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { h.raw = c.Conn }}
	h.forward.ServeHTTP(oneContinue{w}, r.WithContext(httptrace.WithClientTrace(ctx, trace)))
}

// oneContinue leaves 100 Continue to net/http, which says it to a client that waits for it
// when its body is wanted: because the target has said so, or has been silent for a second.
// ReverseProxy would pass on the target's as well, and the client might get two.
type oneContinue struct{ http.ResponseWriter }

func (w oneContinue) WriteHeader(code int) {
	if code != http.StatusContinue {
		w.ResponseWriter.WriteHeader(code)
	}
}

func (w oneContinue) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// lastHop answers TRACE and OPTIONS whose Max-Forwards has run out, and counts it down
// otherwise (RFC 9110, section 7.6.2).
func (h *httpFlow) lastHop(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodTrace && r.Method != http.MethodOptions {
		return false
	}
	n, err := strconv.ParseUint(r.Header.Get("Max-Forwards"), 10, 31)
	if err != nil {
		return false
	}
	if n > 0 {
		r.Header.Set("Max-Forwards", strconv.FormatUint(n-1, 10))
		return false
	}
	if r.Method == http.MethodOptions {
		w.Header().Set("Content-Length", "0")
		return true
	}
	r.Header.Del("Proxy-Authorization")
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	w.Header().Set("Content-Type", "message/http")
	fmt.Fprintf(w, "TRACE %s HTTP/1.1\r\nHost: %s\r\n", r.RequestURI, r.Host)
	r.Header.Write(w)
	io.WriteString(w, "\r\n")
	return true
}

func (h *httpFlow) newForward() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      h.transport,
		Rewrite:        h.rewrite,
		FlushInterval:  -1, // what the target sends is passed on as it comes
		BufferPool:     bodyBuffers{h.o.Buffers},
		ModifyResponse: h.response,
		ErrorHandler:   h.failed,
		ErrorLog:       log.New(debugWriter{h.flow}, "", 0),
	}
}

// bodyBuffers lends buffers to bodies.
type bodyBuffers struct{ *Buffers }

func (b bodyBuffers) Get() []byte  { return b.get(largeBuffer) }
func (b bodyBuffers) Put(p []byte) { b.put(p) }

// rewrite gives the target the request as the client wrote it. ReverseProxy has taken away
// the hop-by-hop fields, and also some things that are the client's business.
func (h *httpFlow) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Trailer = p.In.Trailer // filled in when the body has been read
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v := p.In.Header[name]; v != nil {
			p.Out.Header[name] = v
		}
	}
	if p.In.Method == http.MethodOptions && p.In.URL.Path == "" {
		p.Out.URL.Opaque = "*" // RFC 9112, section 3.2.4
	}
	addVia(p.Out.Header, p.In.ProtoMajor, p.In.ProtoMinor, h.s.via)
}

// addVia says that the message has come this way (RFC 9110, section 7.6.3).
func addVia(head http.Header, major, minor int, name string) {
	head.Add("Via", fmt.Sprintf("%d.%d %s", major, minor, name))
}

// response sees the head of the target's response before the client does.
func (h *httpFlow) response(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return h.upgrade(res)
	}
	h.current.Header()["Content-Type"] = nil // as the target sets it or does not; never guessed
	addVia(res.Header, res.ProtoMajor, res.ProtoMinor, h.s.via)
	return nil
}

// failed answers when there is no response to pass on.
func (h *httpFlow) failed(w http.ResponseWriter, r *http.Request, err error) {
	cause := context.Cause(r.Context())
	switch {
	case errors.Is(err, errUpgraded):
		return
	case errors.Is(cause, ErrIdle):
		answer(w, &httpError{http.StatusGatewayTimeout, ReasonIdle, ErrIdle.Error()})
		return
	case h.heard.late.Load():
		h.deny(w, r, &httpError{http.StatusRequestTimeout, ReasonHandshake, "the request body did not come in time"})
		return
	case cause != nil: // the client has left
		h.booked.Store(true)
		h.refused(ReasonCanceled, r.URL.Host, cause)
		panic(http.ErrAbortHandler)
	}
	h.deny(w, r, targetError(err))
}

// upgradeOf is the protocol that a message wants to change to, or "".
func upgradeOf(head http.Header) string {
	for field := range strings.SplitSeq(strings.Join(head["Connection"], ","), ",") {
		if strings.EqualFold(strings.TrimSpace(field), "upgrade") {
			return head.Get("Upgrade")
		}
	}
	return ""
}

// upgrade relays once the target has said 101. ReverseProxy could do it too, but it neither
// resets nor counts, and loses what the client has sent already.
func (h *httpFlow) upgrade(res *http.Response) error {
	body, ok := res.Body.(io.ReadWriteCloser)
	if got := upgradeOf(res.Header); !ok || h.raw == nil || h.asked == "" || !strings.EqualFold(got, h.asked) {
		return fmt.Errorf("target changed to protocol %q, asked for was %q", got, h.asked)
	}
	target := &withReader{Conn: h.raw, r: body}
	client, err := h.hijack(h.current)
	if err != nil {
		Abort(target)
		return errUpgraded
	}
	defer h.finish()
	var head strings.Builder
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	res.Header.Write(&head)
	head.WriteString("\r\n")
	if err := h.say(client, head.String()); err != nil {
		Abort(target)
		return errUpgraded
	}
	h.idle.Load().stop() // Relay has its own
	h.relay(client, target, res.Request.URL.Host)
	return errUpgraded
}

func (h *httpFlow) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            h.dialTarget,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    2,
		MaxIdleConns:           8,
		IdleConnTimeout:        h.o.KeepAliveTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
	}
}

// dialTarget dials for the transport, which would let a dial outlive its request. Here it
// does so only for as long as the client's connection lasts.
func (h *httpFlow) dialTarget(ctx context.Context, network, address string) (net.Conn, error) {
	h.dials.Add(1)
	defer h.dials.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(h.dialing, func() { cancel(context.Cause(h.dialing)) })
	defer stop()
	c, err := h.dial(ctx, h.now.Load(), network, address)
	if err != nil {
		return nil, err
	}
	t := &targetConn{Conn: c, h: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.targets[t] = struct{}{}
	return t, nil
}

// targetConn is a connection that the transport may keep for the next request.
type targetConn struct {
	net.Conn
	h *httpFlow
}

func (c *targetConn) Close() error {
	c.h.mu.Lock()
	delete(c.h.targets, c)
	c.h.mu.Unlock()
	return c.Conn.Close()
}

func (c *targetConn) CloseWrite() error { return CloseWrite(c.Conn) }

func (c *targetConn) Abort() { Abort(c.Conn) }

// closeTargets ends all that the transport has left.
func (h *httpFlow) closeTargets() {
	h.stopDialing()
	h.dials.Wait()
	h.transport.CloseIdleConnections()
	h.mu.Lock()
	open := make([]net.Conn, 0, len(h.targets))
	for c := range h.targets {
		open = append(open, c)
	}
	h.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// clientBody is a request body that must not stall.
type clientBody struct {
	io.ReadCloser
	control  *http.ResponseController
	patience time.Duration
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.control.SetReadDeadline(time.Now().Add(b.patience))
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { // after another error, net/http must not wait for the rest
		b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
