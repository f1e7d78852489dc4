package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/stillwire/stillwire/cmd/stillwire/demo"
)

type demoCommand struct {
	Naive   bool          `help:"Apply the whole configuration at each change, as many agents do, to compare."`
	Changes int           `placeholder:"N" help:"Live changes to make (10000; 300 with --naive)."`
	Pace    time.Duration `default:"2ms" placeholder:"TIME" help:"Time between two steps (2ms)."`
	Seed    uint64        `placeholder:"N" help:"Repeat the choices of an earlier run (0: new ones)."`
}

func (demoCommand) Help() string {
	return `Three nodes in one process, with real WireGuard between them over UDP on loopback and traffic in each direction, are changed 10,000 times. Needs no root. The exit code is 1 when a packet was lost, a connection reset or a handshake made for no reason, as is to be expected with --naive.`
}

func (c *demoCommand) Run(p *program) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	result, err := demo.Run(ctx, demo.Options{
		Changes: c.Changes, Pace: c.Pace, Seed: c.Seed, Naive: c.Naive, Out: p.stdout, Live: terminal(p.stdout),
	})
	if err != nil {
		return err
	}
	if err := p.println(result.String()); err != nil {
		return err
	}
	if !result.Clean() {
		return errors.New("the traffic was hurt")
	}
	return nil
}
