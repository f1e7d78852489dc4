package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stillwire/stillwire/mesh/kube"
)

type migrateCommand struct {
	Kilo migrateKiloCommand `cmd:"" help:"Write the objects that say what Kilo's say."`
}

type migrateKiloCommand struct {
	File          string `short:"f" default:"-" placeholder:"FILE" help:"Objects as kubectl get nodes,peers.kilo.squat.ai -o yaml prints them (-, stdin)."`
	LocationLabel string `default:"topology.kubernetes.io/region" placeholder:"LABEL" help:"Label of a Node that Kilo was told says where it is (topology.kubernetes.io/region)."`
	Namespace     string `default:"stillwire" placeholder:"NAME" help:"Namespace of the agents, for Secrets with preshared keys (stillwire)."`
}

func (migrateKiloCommand) Help() string {
	return `Reads Kilo's annotations and Peers and writes MeshNodes, Peers and Secrets to apply; what Kilo passes over in silence is named. Nothing is changed. The output holds preshared keys when Kilo's Peers do.

  kubectl get nodes,peers.kilo.squat.ai -o yaml | stillwire migrate kilo > mesh.yaml

To keep the keys that peers elsewhere know, have the agents use Kilo's: --key-file /var/lib/kilo/key. Nodes that still run Kilo and nodes that run Stillwire do not reach each other.`
}

func (c *migrateKiloCommand) Run(p *program) error {
	name, in := "stdin", p.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return &wrong{err}
		}
		defer f.Close()
		name, in = c.File, io.Reader(f)
	}
	manifests, problems, err := kube.FromKilo(name, in, c.LocationLabel, c.Namespace)
	if err != nil {
		return &wrong{err}
	}
	for _, problem := range problems {
		_, _ = fmt.Fprintf(p.stderr, "problem %s: %s\n", problem.Reason, problem)
	}
	if manifests == "" {
		_, _ = fmt.Fprintln(p.stderr, "nothing of Kilo is to be carried over: no annotation of an administrator, and no Peer")
		return nil
	}
	return p.println(strings.TrimSuffix(manifests, "\n"))
}
