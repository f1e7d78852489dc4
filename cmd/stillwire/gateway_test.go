package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack/gateway"
)

// scripted is a gateway that notes what is asked of it.
type scripted struct {
	start error         // what Run ends with at once
	abort chan struct{} // closed by Abort; Run drains until then
	said  []string
}

func (g *scripted) Run(ctx context.Context) error {
	if g.start != nil {
		return g.start
	}
	<-ctx.Done()
	g.said = append(g.said, "drain")
	<-g.abort
	return nil
}

func (g *scripted) Reload(context.Context) ([]gateway.Change, error) {
	g.said = append(g.said, "reload")
	return nil, errors.New("logged by the gateway")
}

func (g *scripted) Abort() {
	g.said = append(g.said, "abort")
	close(g.abort)
}

func TestSignalsSteerTheGateway(t *testing.T) {
	for _, tt := range []struct {
		name string
		send []os.Signal
		want []string
	}{
		{"SIGTERM drains, again aborts", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, []string{"drain", "abort"}},
		{"SIGINT is as good", []os.Signal{syscall.SIGINT, syscall.SIGTERM}, []string{"drain", "abort"}},
		{"SIGHUP reloads, also while draining",
			[]os.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT},
			[]string{"reload", "drain", "reload", "abort"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &scripted{abort: make(chan struct{})}
				signals := make(chan os.Signal)
				ended := make(chan error)
				go func() { ended <- steer(g, signals, zerolog.Nop()) }()
				for _, s := range tt.send {
					signals <- s
					synctest.Wait()
				}
				if err := <-ended; err != nil {
					t.Errorf("it ends with %v", err)
				}
				if diff := cmp.Diff(tt.want, g.said); diff != "" {
					t.Errorf("asked of the gateway (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestGatewayThatCannotStartEndsTheProgram(t *testing.T) {
	want := errors.New("no")
	if err := steer(&scripted{start: want}, make(chan os.Signal), zerolog.Nop()); err != want {
		t.Errorf("it ends with %v, want %v", err, want)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing wrong", nil, 0},
		{"help was asked for", fmt.Errorf("parse: %w", errHelpShown), 0},
		{"anything", errors.New("no"), 1},
		{"a flag", &wrong{errors.New("no")}, 2},
		{"a fault in a file", wrongInput(errors.Join(&device.ParseError{File: "wg0.conf", Line: 1})), 2},
		{"a fault of a service", wrongInput(errors.Join(&gateway.Error{Field: "--socks5"})), 2},
		{"a fault that the device sees", wrongInput(fmt.Errorf("wg0: %w", &device.ConfigError{Field: "Peers"})), 2},
		{"a port that is taken", wrongInput(fmt.Errorf("%w: %w", &gateway.Error{Field: "--socks5"}, syscall.EADDRINUSE)), 1},
		{"a plan with changes", reported{exitChanges}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &program{stderr: io.Discard}
			if got := p.report(tt.err); got != tt.want {
				t.Errorf("code %d, want %d", got, tt.want)
			}
		})
	}
}
