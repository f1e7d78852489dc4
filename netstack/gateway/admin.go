package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Deadlines of the admin listener. Its requests are one line and its answers small, but for
// a plan that reads files.
const (
	adminRead  = 5 * time.Second
	adminWrite = 30 * time.Second
	adminIdle  = time.Minute
)

// reporter is what the admin listener shows: the gateway.
type reporter interface {
	Status() Status
	Plan(ctx context.Context, files ...string) (Plan, error)
}

// admin serves /livez, /readyz, /status and /plan on one listener. Nothing that it does
// changes the gateway. The loop of the gateway calls its methods.
type admin struct {
	spec   Admin
	log    zerolog.Logger
	report reporter
	listen net.Listener
	server *http.Server
	done   chan struct{} // nil: nothing is served yet
}

// openAdmin opens the listener. It serves nothing yet.
func openAdmin(ctx context.Context, spec Admin, r reporter, log zerolog.Logger) (*admin, error) {
	ln, err := openStream(ctx, spec.Listen, spec.Open)
	if err != nil {
		return nil, err
	}
	return &admin{spec: spec, log: log, report: r, listen: ln}, nil
}

func (a *admin) serve() {
	server := &http.Server{
		Handler:                      adminHandler(a.report),
		ReadTimeout:                  adminRead,
		WriteTimeout:                 adminWrite,
		IdleTimeout:                  adminIdle,
		MaxHeaderBytes:               16 << 10,
		ConnContext:                  withConn,
		ErrorLog:                     stdlog.New(debugWriter{a.log}, "", 0),
		DisableGeneralOptionsHandler: true,
	}
	done, ln := make(chan struct{}), a.listen
	a.server, a.done = server, done
	go func() {
		defer close(done)
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error().Err(err).Msg("admin listener has ended")
		}
	}()
}

// close ends the listener and every request.
func (a *admin) close() {
	if a.done == nil {
		a.listen.Close()
		return
	}
	a.server.Close()
	<-a.done
}

// pause frees the place, for another listener that may take it.
func (a *admin) pause() { a.close() }

// resume takes the place again.
func (a *admin) resume() {
	ln, err := openStream(context.Background(), a.spec.Listen, a.spec.Open)
	if err != nil {
		a.log.Error().Err(err).Str("listen", a.spec.Listen.String()).Msg("admin listener could not be opened again")
		return
	}
	a.listen = ln
	a.serve()
}

// adminHandler answers GET and HEAD alone.
func adminHandler(r reporter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := r.Status()
		if s.Ready {
			writeText(w, http.StatusOK, "ok\n")
			return
		}
		writeText(w, http.StatusServiceUnavailable, strings.Join(s.NotReady, "\n")+"\n")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, r.Status())
	})
	mux.HandleFunc("GET /plan", func(w http.ResponseWriter, req *http.Request) { planFor(r, w, req) })
	return guard(mux)
}

// guard refuses requests that a web page could have made: one that reaches loopback by a
// name of its own (DNS rebinding) or from another site. Nothing is stored by anyone.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if socketConn(r) == nil && !hostIsAddress(r.Host) {
			writeText(w, http.StatusForbidden, "the Host of a request must be an IP address or localhost\n")
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
			writeText(w, http.StatusForbidden, "requests from other sites are not answered\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostIsAddress reports whether a Host header names no domain.
func hostIsAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// planFor says what a reload would change. It reads the files that the request names, as
// the gateway's own user, so only that user and root may ask, on a unix socket.
func planFor(r reporter, w http.ResponseWriter, req *http.Request) {
	conn := socketConn(req)
	if conn == nil {
		writeText(w, http.StatusForbidden, "a plan is given on a unix socket only: run the gateway with --admin unix:/path\n")
		return
	}
	if uid, ok := peerUser(conn); !ok || uid != 0 && uid != os.Getuid() {
		writeText(w, http.StatusForbidden, "a plan is given to the gateway's own user and to root only\n")
		return
	}
	plan, err := r.Plan(req.Context(), req.URL.Query()["file"]...)
	if err != nil {
		writeText(w, http.StatusServiceUnavailable, err.Error()+"\n")
		return
	}
	writeJSON(w, plan)
}

// connKey is where withConn keeps the connection of a request.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// socketConn returns the unix connection that a request came on, or nil.
func socketConn(r *http.Request) *net.UnixConn {
	conn, _ := r.Context().Value(connKey{}).(*net.UnixConn)
	return conn
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // the caller has gone: nobody to tell
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}

// debugWriter takes what net/http says of broken clients.
type debugWriter struct{ log zerolog.Logger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug().Str("said", strings.TrimSpace(string(p))).Msg("admin client broke off")
	return len(p), nil
}
