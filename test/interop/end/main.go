// Command end is one end of a tunnel in a process of its own, with the services of package
// talk on it. It obeys net/rpc on its standard input and output, and ends when they do.
package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/rpc"
	"os"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/test/interop/talk"
)

// End is the service.
type End struct{ stack talk.Stack }

// Nothing is what a call without results has.
type Nothing struct{}

// OpenArgs are what there is to configure.
type OpenArgs struct {
	Stillwire bool   // netstack.Net, or else wireguard-go with its own netstack and Bind
	Config    string // wg-quick text
}

// TalkArgs are those of every way to talk.
type TalkArgs struct {
	Host        netip.Addr
	Bytes       int64
	Count, Size int
}

// limit of everything that is said.
const limit = time.Minute

func main() {
	server := rpc.NewServer()
	if err := server.Register(&End{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server.ServeConn(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
}

// Open opens the tunnel and returns its UDP port.
func (e *End) Open(a OpenArgs, port *uint16) error {
	f, err := device.Parse("end.conf", strings.NewReader(a.Config), device.ParseOptions{})
	if err != nil {
		return err
	}
	open := openUpstream
	if a.Stillwire {
		open = openStillwire
	}
	if e.stack, *port, err = open(f); err != nil {
		return err
	}
	_, err = talk.Serve(e.stack)
	return err
}

func (e *End) talk(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return do(ctx)
}

// Download gets bytes from a host.
func (e *End) Download(a TalkArgs, _ *Nothing) error {
	return e.talk(func(ctx context.Context) error { return e.stack.Download(ctx, a.Host, a.Bytes) })
}

// Upload sends bytes to a host.
func (e *End) Upload(a TalkArgs, _ *Nothing) error {
	return e.talk(func(ctx context.Context) error { return e.stack.Upload(ctx, a.Host, a.Bytes) })
}

// Echo has datagrams come back from a host.
func (e *End) Echo(a TalkArgs, _ *Nothing) error {
	return e.talk(func(ctx context.Context) error { return e.stack.Echo(ctx, a.Host, a.Count, a.Size) })
}

// Ping has a host answer.
func (e *End) Ping(a TalkArgs, _ *Nothing) error {
	return e.talk(func(ctx context.Context) error { return e.stack.Ping(ctx, a.Host) })
}
