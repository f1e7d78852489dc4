package netstack_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

// Two ends of a tunnel in one process: an HTTP server on one, a client on the other.
func Example() {
	serverKey, clientKey := newKey(), newKey()

	server, err := netstack.Open(netstack.Options{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")},
		Config: device.Config{
			PrivateKey: serverKey,
			Peers: []device.PeerConfig{{
				PublicKey:  clientKey.Public(),
				AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")},
			}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	state, err := server.State()
	if err != nil {
		log.Fatal(err)
	}

	client, err := netstack.Open(netstack.Options{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")},
		Config: device.Config{
			PrivateKey: clientKey,
			Peers: []device.PeerConfig{{
				PublicKey:  serverKey.Public(),
				Endpoint:   device.Endpoint{Host: "127.0.0.1", Port: state.ListenPort},
				AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
			}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	l, err := server.Listen("tcp", ":80")
	if err != nil {
		log.Fatal(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello", strings.Split(r.RemoteAddr, ":")[0])
	}))

	web := http.Client{Transport: client.HTTPTransport()}
	defer web.CloseIdleConnections()
	resp, err := web.Get("http://10.0.0.1/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(body))
	// Output: hello 10.0.0.2
}

// From a wg-quick file to a connection.
func ExampleOpen() {
	f, err := device.Parse("wg0.conf", strings.NewReader(`
[Interface]
PrivateKey = `+newKey().Reveal()+`
Address = 10.0.0.2/24

[Peer]
PublicKey = `+newKey().Public().String()+`
AllowedIPs = 10.0.0.1/32
`), device.ParseOptions{})
	if err != nil {
		log.Fatal(err)
	}
	n, err := netstack.Open(netstack.FromFile(f))
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = n.DialContext(ctx, "tcp", "10.0.0.9:22")
	fmt.Println(err)
	// Output: dial tcp 10.0.0.9:22: 10.0.0.9: no peer's allowed IPs cover the address: network is unreachable
}

func newKey() device.PrivateKey {
	key, err := device.NewPrivateKey()
	if err != nil {
		log.Fatal(err)
	}
	return key
}
