package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// NewHTTP makes an HTTP/1.1 proxy (RFC 9110, RFC 9112): CONNECT, and requests in absolute
// form by every method, with keep-alive, trailers, 1xx responses and upgrades such as
// WebSocket's. Clients authenticate with Basic (RFC 7617) in Proxy-Authorization if there are
// Options.Users. Connections to targets belong to one client's connection each: no client
// meets what another has left behind. An error says what is missing in the options.
func NewHTTP(o Options) (*Server, error) { return newServer("http proxy", serveHTTP, o) }

// httpFlow is a flow whose client speaks HTTP. net/http does the reading and writing, with a
// server that has this one connection and a transport of its own; requests come one after
// the other.
type httpFlow struct {
	*flow
	now       atomic.Pointer[Options] // each request is served as it is when it comes
	forward   *httputil.ReverseProxy
	transport *http.Transport

	heard    *heardConn // the client, as net/http has it
	over     chan struct{}
	finish   func() // closes over: the connection is done with
	handlers sync.WaitGroup
	requests int
	asking   bool // for a credential was all that was done so far

	dialing     context.Context
	stopDialing context.CancelFunc
	dials       sync.WaitGroup
	mu          sync.Mutex
	targets     map[net.Conn]struct{} // open connections of transport

	// Of the request in progress.
	current http.ResponseWriter
	asked   string      // the protocol that it asks to upgrade to
	raw     net.Conn    // the connection that carried it
	booked  atomic.Bool // why it is cut has been counted
}

func serveHTTP(f *flow) {
	h := &httpFlow{flow: f, heard: &heardConn{Conn: f.client}, over: make(chan struct{}), targets: make(map[net.Conn]struct{})}
	h.finish = sync.OnceFunc(func() { close(h.over) })
	h.now.Store(f.o)
	h.dialing, h.stopDialing = context.WithCancel(f.ctx)
	h.transport = h.newTransport()
	h.forward = h.newForward()
	srv := h.newServer()
	// Shutdown: a client between two requests has nothing to wait for.
	stop := context.AfterFunc(f.s.closing, func() { srv.SetKeepAlivesEnabled(false) })
	defer stop()
	srv.Serve(&oneListener{conn: h.heard, over: h.over})
	h.handlers.Wait()
	h.closeTargets()
	if h.asking {
		h.complain(ReasonAuth, "", nil)
	}
	if r := h.heard.verdict(); h.requests == 0 && r != "" && f.ctx.Err() == nil {
		f.refused(r, "", errors.New("connection ended before there was a request"))
	}
}

// heardConn remembers what net/http does not tell about a client that it turns away itself.
type heardConn struct {
	net.Conn
	some, late atomic.Bool // something was read; the time to read was over, as net/http also makes it to interrupt
	length     lengthSeen
}

func (c *heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.some.Store(true)
		c.length.look(b[:n])
	}
	if err != nil && isTimeout(err) {
		c.late.Store(true)
	}
	return n, err
}

func (c *heardConn) CloseWrite() error { return CloseWrite(c.Conn) }

func (c *heardConn) Abort() { Abort(c.Conn) }

// verdict is why there was no request. A client that said nothing and left is none.
func (c *heardConn) verdict() Reason {
	switch {
	case c.late.Load():
		return ReasonHandshake
	case c.some.Load():
		return ReasonProtocol
	}
	return ""
}

func (h *httpFlow) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      h,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            h.o.HandshakeTimeout,
		IdleTimeout:                  h.o.KeepAliveTimeout,
		MaxHeaderBytes:               h.o.MaxHeaderBytes,
		BaseContext:                  func(net.Listener) context.Context { return h.ctx },
		ErrorLog:                     log.New(debugWriter{h.flow}, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				h.finish()
			}
		},
	}
}

// oneListener gives its one connection and then waits until that is done with, as the server
// of the connection shall.
type oneListener struct {
	conn net.Conn
	over chan struct{}
	once sync.Once
}

func (l *oneListener) Accept() (c net.Conn, err error) {
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.over
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

// debugWriter is where net/http's own lines go.
type debugWriter struct{ *flow }

func (w debugWriter) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	if strings.Contains(line, "panic serving") {
		w.log.Error().Msg(line)
		return len(b), nil
	}
	w.log.Debug().Msg(line)
	return len(b), nil
}

// ServeHTTP serves one request of the client.
func (h *httpFlow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.handlers.Add(1)
	defer h.handlers.Done()
	h.requests++
	defer h.resetOnAbort()
	if now := h.s.opts.Load(); h.now.Swap(now) != now {
		h.transport.CloseIdleConnections() // they were made by another dialer
	}
	if err := h.check(r); err != nil {
		h.deny(w, r, err)
		return
	}
	h.asking = false
	if r.Method == http.MethodConnect {
		h.connect(w, r)
		return
	}
	if len(r.TransferEncoding) > 0 && h.heard.length.seen.Load() {
		w.Header().Set("Connection", "close") // RFC 9112, section 6.1
	}
	h.pass(w, r)
}

// resetOnAbort resets a client that has got a part of a response of which the rest will not
// come. net/http closes the connection in order, which can look like the end of the response.
func (h *httpFlow) resetOnAbort() {
	p := recover()
	if p == nil {
		return
	}
	if !h.booked.Load() && h.ctx.Err() == nil {
		h.s.counts.cut.add(ReasonReset)
	}
	Abort(h.client)
	panic(p)
}

// httpError is a request that is not served.
type httpError struct {
	status int
	reason Reason
	detail string
}

func (e *httpError) Error() string { return e.detail }

// check says why a request is not served, before anything is done for it.
func (h *httpFlow) check(r *http.Request) *httpError {
	switch {
	case h.refusal != "":
		return &httpError{http.StatusServiceUnavailable, h.refusal, "too many connections are open, try again later"}
	case !h.authorized(r):
		return &httpError{http.StatusProxyAuthRequired, ReasonAuth, "user name and password are required, or were wrong"}
	case r.Method == http.MethodConnect:
		return nil
	case r.URL.Scheme == "" || r.URL.Host == "":
		return &httpError{http.StatusBadRequest, ReasonProtocol, "this is an HTTP proxy and no web server: set it as the proxy of your client"}
	case r.URL.Scheme != "http":
		return &httpError{http.StatusBadRequest, ReasonProtocol, fmt.Sprintf("scheme %q cannot be proxied in plain text: use CONNECT", r.URL.Scheme)}
	case strings.Contains(strings.Join(r.Header["Via"], ","), h.s.via):
		return &httpError{http.StatusLoopDetected, ReasonLoop, "the request has passed this proxy before"}
	}
	if _, err := hostPort(r.URL.Host, 80); err != nil {
		return &httpError{http.StatusBadRequest, ReasonName, err.Error()}
	}
	return nil
}

// authorized reports whether the request may pass. Only Basic is known.
func (h *httpFlow) authorized(r *http.Request) bool {
	users := h.now.Load().Users
	if users.IsZero() {
		return true
	}
	basic := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, pass, ok := basic.BasicAuth()
	return ok && users.Check(user, pass)
}

// deny answers with one line of text that says why. What the log gets of the request is its
// host: the rest is the client's business. A client that waits to be asked for its credential
// is no trouble yet.
func (h *httpFlow) deny(w http.ResponseWriter, r *http.Request, err *httpError) {
	h.asking = err.reason == ReasonAuth && r.Header.Get("Proxy-Authorization") == ""
	if h.asking {
		h.turnedAway(err.reason, r.Host, err)
	} else {
		h.refused(err.reason, r.Host, err)
	}
	answer(w, err)
}

func answer(w http.ResponseWriter, err *httpError) {
	head := w.Header()
	clear(head)
	head.Set("Content-Type", "text/plain; charset=utf-8")
	head.Set("X-Content-Type-Options", "nosniff")
	switch err.status {
	case http.StatusProxyAuthRequired:
		head.Set("Proxy-Authenticate", `Basic realm="stillwire", charset="UTF-8"`)
	case http.StatusRequestTimeout:
		head.Set("Connection", "close")
	case http.StatusServiceUnavailable:
		head.Set("Connection", "close")
		head.Set("Retry-After", "1")
	}
	w.WriteHeader(err.status)
	fmt.Fprintf(w, "stillwire: %s (%s)\n", oneLine(err.detail), err.reason)
}

// oneLine keeps what came from outside from beginning a line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// targetError is the answer to a client whose target could not be reached or failed.
func targetError(err error) *httpError {
	r := DialReason(err)
	status := http.StatusBadGateway
	switch r {
	case ReasonTimeout:
		status = http.StatusGatewayTimeout
	case ReasonPolicy:
		status = http.StatusForbidden
	}
	return &httpError{status, r, err.Error()}
}

// connect serves CONNECT. The request's context ends when the client leaves.
func (h *httpFlow) connect(w http.ResponseWriter, r *http.Request) {
	d, err := hostPort(r.RequestURI, 0)
	if err != nil {
		h.deny(w, r, &httpError{http.StatusBadRequest, ReasonName, err.Error()})
		return
	}
	target, err := h.dial(r.Context(), h.now.Load(), "tcp", d.String())
	if err != nil {
		h.deny(w, r, targetError(err))
		return
	}
	client, err := h.hijack(w)
	if err != nil {
		h.refused(ReasonCanceled, d.String(), err)
		Abort(target)
		return
	}
	defer h.finish()
	if err := h.say(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		h.refused(ReasonCanceled, d.String(), err)
		Abort(target)
		return
	}
	h.relay(client, target, d.String())
}

// hijack takes the connection out of net/http's hands, with what it has read of it. The
// caller calls finish when it is done with it.
func (h *httpFlow) hijack(w http.ResponseWriter) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.finish() // whose hands the connection is in now is not known
		return nil, err
	}
	h.heard.length.seen.Store(true) // what comes now is no HTTP: it is not looked at
	n := rw.Reader.Buffered()
	if n == 0 {
		return conn, nil
	}
	head, _ := rw.Reader.Peek(n)
	return &headed{Conn: conn, head: head}, nil
}

func (h *httpFlow) say(client net.Conn, text string) error {
	client.SetWriteDeadline(time.Now().Add(h.o.HandshakeTimeout))
	defer client.SetWriteDeadline(time.Time{})
	_, err := io.WriteString(client, text)
	return err
}
