package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/stillwire/stillwire/netstack/gateway"
)

// answerTime is how long a running gateway is given to answer.
const answerTime = 30 * time.Second

type planCommand struct {
	Files         []string `arg:"" optional:"" name:"file" help:"Files to read in the place of those of the running tunnels of the same names. With one of each, names do not matter."`
	Admin         string   `xor:"of" placeholder:"LISTEN" help:"Admin socket of the running gateway, such as unix:/run/stillwire.sock."`
	Agent         string   `xor:"of" placeholder:"DIR" help:"State folder of the running agent, such as /var/lib/stillwire."`
	Dir           string   `xor:"of" placeholder:"DIR" help:"Directory of manifests: plan a node of that mesh, with nothing running."`
	File          string   `short:"f" xor:"of" placeholder:"FILE" help:"Objects as kubectl get nodes,meshnodes,peers -o yaml prints them, or - for stdin: plan a node of that mesh, with nothing running."`
	Node          string   `placeholder:"NAME" help:"With --dir or --file: the node (the host name)."`
	Kilo          bool     `help:"With --file: read Kilo's annotations and Peers as well."`
	LocationLabel string   `default:"topology.kubernetes.io/region" placeholder:"LABEL" help:"With --file: label of a Node that says where it is (topology.kubernetes.io/region)."`
	meshFlags
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Format: text or json."`
}

func (planCommand) Help() string {
	return "Of a gateway, without files: what it would change if it read its own again. Of an agent: what this node shall be, the problems in the way, and what would change. Of a directory or file: the same, but for what would change; the flags of the mesh (--topology and so on), which are for this alone, are those that its agents have. Does nothing itself. Ends with code 0 when nothing would change, 3 when something would, 2 when it would be refused."
}

func (c *planCommand) Run(p *program) error {
	switch {
	case c.Admin == "" && c.Agent == "" && c.Dir == "" && c.File == "":
		return &wrong{errors.New("plan of what? give --admin LISTEN of a running gateway, --agent DIR of a running agent, --dir DIR or --file FILE")}
	case c.Agent != "" && c.Output != "text":
		return &wrong{errors.New("-o json: the plan of a running agent is text alone, leave -o out")}
	case c.Dir != "" || c.File != "":
		return c.planOffline(p)
	case c.Agent != "":
		return c.planRunning(p)
	}
	client, err := gateway.NewClient(c.Admin)
	if err != nil {
		return &wrong{err}
	}
	files, err := absolute(c.Files)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	plan, err := client.Plan(ctx, files...)
	if err != nil {
		return err
	}
	return c.show(p, plan)
}

// show prints a plan and returns what it means as an exit code.
func (c *planCommand) show(p *program, plan gateway.Plan) error {
	if c.Output == "json" {
		b, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			return err
		}
		if err := p.println(string(b)); err != nil {
			return err
		}
	} else if len(plan.Refused) == 0 {
		if err := p.println(strings.TrimSuffix(plan.String(), "\n")); err != nil {
			return err
		}
	}
	switch {
	case len(plan.Refused) > 0:
		return &wrong{errors.New(strings.Join(plan.Refused, "\n"))}
	case len(plan.Changes) > 0:
		return reported{exitChanges}
	}
	return nil
}

// absolute makes paths that mean the same to the gateway, whose folder is another.
func absolute(paths []string) ([]string, error) {
	out := make([]string, len(paths))
	for i, path := range paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", path, err)
		}
		out[i] = abs
	}
	return out, nil
}
