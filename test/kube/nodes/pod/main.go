// Command pod is what the pods of tests run. Without arguments it waits, as the container that
// holds a pod's namespaces does. Else its first argument says what it does:
//
//	pod serve      answers HTTP on port 8080 and returns UDP datagrams on 8081
//	pod get URL    writes what an HTTP server answers
//
// What pod serve answers on /:
//
//	/                     who it is, and who asks, as it sees the address
//	/get?url=URL          what another server answers to this pod
//	/flow/start?to=ADDR   begins to send numbered datagrams to the port 8081 of another pod
//	/flow/stop            ends that, and says as JSON what came back: see Flow
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case len(args) == 0:
		<-ctx.Done()
		return nil
	case args[0] == "serve":
		return serve(ctx)
	case args[0] == "get" && len(args) == 2:
		return get(ctx, os.Stdout, args[1])
	}
	return errors.New("usage: pod [serve | get URL]")
}

// serve answers until the context ends.
func serve(ctx context.Context) error {
	echo, err := net.ListenUDP("udp4", &net.UDPAddr{Port: echoPort})
	if err != nil {
		return err
	}
	go returnAll(echo)
	listener, err := net.Listen("tcp4", ":8080")
	if err != nil {
		return err
	}
	fmt.Println("serving on", address())
	server := &http.Server{Handler: handler(), ReadTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler() http.Handler {
	flow := &flow{}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "pod %s, asked by %s\n", address(), r.RemoteAddr)
	})
	mux.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		answer(w, get(r.Context(), w, r.FormValue("url")))
	})
	mux.HandleFunc("/flow/start", func(w http.ResponseWriter, r *http.Request) {
		to, err := netip.ParseAddr(r.FormValue("to"))
		if err == nil {
			err = flow.start(netip.AddrPortFrom(to, echoPort))
		}
		answer(w, err)
	})
	mux.HandleFunc("/flow/stop", func(w http.ResponseWriter, r *http.Request) {
		report, err := flow.stop()
		if err == nil {
			err = json.NewEncoder(w).Encode(report)
		}
		answer(w, err)
	})
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// patience is how long a server may take to answer.
const patience = 3 * time.Second

// get writes what a server answers.
func get(ctx context.Context, w io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// A transport goes on to dial for a while when nobody waits for the answer any more.
	dialer := &net.Dialer{Timeout: patience}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(w, response.Body)
	return err
}

// address is the pod's own: the first that is not of loopback.
func address() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err.Error()
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			return p.Addr().String()
		}
	}
	return "none"
}
