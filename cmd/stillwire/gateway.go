package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack/gateway"
)

// sourceFlags name all that a gateway is made of. A gateway is run with them, and checked.
type sourceFlags struct {
	Files    []string  `arg:"" optional:"" name:"file" help:"wg-quick or wireproxy files, each one a tunnel."`
	More     []string  `name:"wireproxy" short:"c" sep:"none" placeholder:"FILE" help:"As FILE, in the words of wireproxy."`
	Config   string    `placeholder:"FILE" help:"YAML file with tunnels, services and settings."`
	SOCKS5   []string  `name:"socks5" sep:"none" placeholder:"LISTEN" help:"SOCKS5 proxy into the tunnel, such as 127.0.0.1:1080 or user:passfile@0.0.0.0:1080."`
	HTTP     []string  `name:"http" sep:"none" placeholder:"LISTEN" help:"HTTP proxy into the tunnel, such as 127.0.0.1:8080."`
	Forward  []string  `sep:"none" placeholder:"NET/LISTEN=TARGET" help:"Port here to a target behind the tunnel, such as tcp/127.0.0.1:5432=10.0.0.5:5432."`
	Publish  []string  `sep:"none" placeholder:"NET/PORT=TARGET" help:"Port inside the tunnel to a target here, such as tcp/8080=127.0.0.1:80."`
	Open     bool      `help:"Allow listeners that other machines can reach without a credential."`
	Admin    string    `placeholder:"LISTEN" help:"Serve /livez, /readyz and /status, and /plan on a unix socket such as unix:/run/stillwire.sock."`
	Drain    *patience `placeholder:"TIME" help:"Time that open flows are given when the gateway stops (20s)."`
	StateDir string    `placeholder:"DIR" help:"Keep learnt endpoints in this folder over a restart."`
	UAPI     string    `name:"uapi" placeholder:"DIR" help:"Socket of each tunnel for wg(8), such as /var/run/wireguard."`
}

// sources takes what flags are called from the environment that stands in for them.
func (f *sourceFlags) sources(names map[string]string) gateway.Sources {
	return gateway.Sources{
		Files: slices.Concat(f.Files, f.More), Config: f.Config,
		SOCKS5: f.SOCKS5, HTTP: f.HTTP, Forward: f.Forward, Publish: f.Publish,
		Open: f.Open, Admin: f.Admin, Drain: (*time.Duration)(f.Drain), StateDir: f.StateDir, UAPIDir: f.UAPI,
		Names: names,
	}
}

// patience is a time from 0 up.
type patience time.Duration

// UnmarshalText reads "20s". It says of what is wrong the same as of a YAML file.
func (d *patience) UnmarshalText(text []byte) error {
	t, err := time.ParseDuration(string(text))
	if err != nil || t < 0 {
		return fmt.Errorf("%q is not a time from 0 up: write a number and a unit, such as 30s or 5m", text)
	}
	*d = patience(t)
	return nil
}

// gatewayFlags are all that a gateway takes. A check takes them too, so that nothing but the
// command need be changed.
type gatewayFlags struct {
	sourceFlags
	NoGSO bool `name:"no-gso" help:"Send UDP packets one by one (no segmentation offload)."`
	NoGRO bool `name:"no-gro" help:"Receive UDP packets one by one (no receive offload)."`
	logFlags
}

type gatewayCommand struct {
	gatewayFlags
}

func (gatewayCommand) Help() string {
	return `Needs no root, no capability and no file that can be written to. LISTEN is ADDRESS:PORT, PORT on loopback, or unix:PATH; with several tunnels, TUNNEL/ stands before it.

SIGHUP, and a changed file, reload the configuration: only what differs is touched, and a wrong one changes nothing. SIGTERM and SIGINT let open flows end; a second one ends them at once.`
}

func (c *gatewayCommand) Run(p *program) error {
	log := c.logger(p.stderr)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	err := steer(gateway.New(gateway.Options{
		Sources: c.sources(p.names),
		Bind:    device.BindOptions{NoGSO: c.NoGSO, NoGRO: c.NoGRO},
		Log:     log,
	}), signals, log)
	switch {
	case err == nil:
		return nil
	case c.console(p.stderr):
		return wrongInput(err)
	}
	for reason := range strings.SplitSeq(err.Error(), "\n") {
		log.Error().Str("reason", reason).Msg("gateway could not start")
	}
	return reported{codeOf(wrongInput(err))}
}

// steered is what signals steer: a *gateway.Gateway.
type steered interface {
	Run(ctx context.Context) error
	Reload(ctx context.Context) ([]gateway.Change, error)
	Abort()
}

// steer runs a gateway until it ends: SIGHUP reloads it, the first of the other signals
// drains it, the second aborts what is left, and the third has its default effect.
func steer(g steered, signals chan os.Signal, log zerolog.Logger) error {
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ended := make(chan error, 1)
	tasks.Go(func() { ended <- g.Run(ctx) })

	stops := 0
	for {
		select {
		case err := <-ended:
			if stops > 0 && errors.Is(err, context.Canceled) {
				return nil // stopped before it was up
			}
			return err
		case s := <-signals:
			if s == syscall.SIGHUP {
				// The gateway logs what came of it.
				tasks.Go(func() { _, _ = g.Reload(ctx) })
				continue
			}
			stops++
			if stops == 1 {
				log.Info().Stringer("signal", s).Msg("signal received: a second one ends open flows at once")
				drain()
				continue
			}
			log.Info().Stringer("signal", s).Msg("second signal received: open flows are aborted")
			signal.Stop(signals)
			g.Abort()
		}
	}
}

// wrongInput tells what the operator must correct from what may go well the next time: a
// fault in a file or flag, or a path where there is no such thing, ends with code 2, another
// refusal of the system with code 1.
func wrongInput(err error) error {
	var (
		refused *gateway.Error
		parse   *device.ParseError
		config  *device.ConfigError
		system  syscall.Errno
	)
	input := errors.As(err, &refused) || errors.As(err, &parse) || errors.As(err, &config)
	if input && (!errors.As(err, &system) || slices.Contains(noSuchPath, system)) {
		return &wrong{err}
	}
	return err
}

var noSuchPath = []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG}

type checkCommand struct {
	gatewayFlags
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Format: text or json."`
}

func (checkCommand) Help() string {
	return "Takes the files and flags of stillwire gateway, and opens nothing. Ends with code 2 when a gateway of this user would refuse to start with them. Whether ports are free is not tried."
}

func (c *checkCommand) Run(p *program) error {
	report, err := gateway.Check(c.sources(p.names))
	text := report.String()
	if c.Output == "json" {
		b, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		text = string(b) + "\n"
	}
	if _, failed := fmt.Fprint(p.stdout, text); failed != nil {
		return fmt.Errorf("write to stdout: %w", failed)
	}
	if err != nil {
		return &wrong{err}
	}
	return nil
}
