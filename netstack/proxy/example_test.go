package proxy_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/stillwire/stillwire/netstack/proxy"
)

// A SOCKS5 and HTTP proxy on one port of loopback, which ends with the process. In place of
// net.Dialer and net.ListenConfig stand the tunnel's, and the same server then leads into the
// tunnel.
func ExampleNewMixed() {
	const listen = "127.0.0.1:0"
	if err := proxy.CheckListen(listen, false, false); err != nil {
		fmt.Println(err)
		return
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := proxy.NewMixed(proxy.Options{Dialer: new(net.Dialer), Packets: new(net.ListenConfig)})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error)
	go func() { done <- server.Serve(context.Background(), ln) }()

	// At the end: time for the flows there are, then a reset for those that are left.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fmt.Println(server.Shutdown(ctx))
	fmt.Println(<-done)
	// Output:
	// <nil>
	// proxy server is shut down
}
