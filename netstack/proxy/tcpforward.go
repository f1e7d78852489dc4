package proxy

import (
	"errors"
	"fmt"
	"strings"
)

// NewTCPForward makes a server that connects every client with one target: HOST:PORT, or
// unix:PATH for a dialer that knows the network "unix". The client's connection stands before
// the target is dialled, so a target that cannot be reached becomes a reset. An error says
// what is wrong with the target or missing in the options.
func NewTCPForward(target string, o Options) (*Server, error) {
	network, address, err := forwardTarget(target)
	if err != nil {
		return nil, err
	}
	return newServer("tcp forward", func(f *flow) { serveForward(f, network, address) }, o)
}

func forwardTarget(target string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("target %q has no path: write unix:/path", target)
		}
		return "unix", path, nil
	}
	d, err := hostPort(target, 0)
	if err != nil {
		return "", "", fmt.Errorf("target %w: write 10.0.0.5:5432, [fd00::5]:5432 or name.example:5432", err)
	}
	return "tcp", d.String(), nil
}

// serveForward keeps a client that has ended its side already: it may have sent all it has to
// say, and waits for the answer.
func serveForward(f *flow, network, address string) {
	if f.refusal != "" {
		f.refused(f.refusal, address, errors.New("too many connections"))
		Abort(f.client)
		return
	}
	target, client, err := f.dialAttended(f.client, network, address, false)
	if err != nil {
		f.refused(DialReason(err), address, err)
		Abort(f.client)
		return
	}
	f.relay(client, target, address)
}
