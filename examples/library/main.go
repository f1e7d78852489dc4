// Command library fetches a page through a tunnel, inside one program: no root, no interface of the
// system, no proxy.
//
//	go run ./examples/library wg0.conf http://10.0.0.1/
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: library WG-QUICK-FILE URL")
	}
	file, err := device.ParseFile(args[0])
	if err != nil {
		return err
	}
	tunnel, err := netstack.Open(netstack.FromFile(file))
	if err != nil {
		return err
	}
	defer tunnel.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[1], nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: tunnel.HTTPTransport()}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
