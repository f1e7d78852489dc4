package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/stillwire/stillwire/netstack/gateway"
)

type statusCommand struct {
	StateDir string `default:"/var/lib/stillwire" placeholder:"DIR" help:"State folder of the running agent."`
	Admin    string `placeholder:"LISTEN" help:"With --check: admin listener of a running gateway, in place of an agent."`
	Check    string `enum:",live,ready" default:"" placeholder:"WHAT" help:"Only say by the exit code whether it is live or ready: a probe for a container without a shell."`
}

func (statusCommand) Help() string {
	return "What a running agent knows, as JSON: members and whether they are reached, leaders, problems with their remedies. With --check nothing is shown: code 0 says that it is so, 1 that it is not, with the reason on stderr."
}

func (c *statusCommand) Run(p *program) error {
	if c.Check != "" {
		return c.check()
	}
	if c.Admin != "" {
		return &wrong{errors.New("--admin is for --check: the status of a gateway is /status of its admin listener")}
	}
	text, err := askAgent(filepath.Join(c.StateDir, socketName), "/status")
	if err != nil {
		return err
	}
	return p.println(strings.TrimSuffix(text, "\n"))
}

func (c *statusCommand) check() error {
	if c.Admin == "" {
		_, err := askAgent(filepath.Join(c.StateDir, socketName), "/"+c.Check+"z")
		return err
	}
	client, err := gateway.NewClient(c.Admin)
	if err != nil {
		return &wrong{err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if c.Check == "live" {
		return client.Live(ctx)
	}
	return client.Ready(ctx)
}
