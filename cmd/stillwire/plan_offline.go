package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/file"
	"github.com/stillwire/stillwire/mesh/kube"
)

// planOffline plans a node from a directory or from objects of a cluster alone.
func (c *planCommand) planOffline(p *program) error {
	update, err := c.read(p)
	if err != nil {
		return &wrong{err}
	}
	name, err := nodeName(c.Node)
	if err != nil {
		return err
	}
	snapshot := mesh.Snapshot{Nodes: update.Nodes, Peers: update.Peers}
	var settled mesh.Settings
	if update.Settings != nil {
		settled = *update.Settings
	}
	snapshot.Settings = settled.Or(c.settings())
	snapshot, standIns := mesh.Rehearse(snapshot)
	plan, problems := mesh.MakePlan(snapshot, name, mesh.Options{})
	problems = append(update.Problems, problems...)
	if plan.Self == "" {
		for _, problem := range problems {
			_, _ = fmt.Fprintf(p.stderr, "problem %s: %s\n", problem.Reason, problem)
		}
		return &wrong{fmt.Errorf("there is no plan for node %q: give one of %s with --node", name, strings.Join(nodeNames(snapshot), ", "))}
	}
	if c.Output == "json" {
		b, err := json.MarshalIndent(plan.Report(problems), "", "  ")
		if err != nil {
			return err
		}
		return p.println(string(b))
	}
	return p.println(offlineText(plan, problems, standIns))
}

// read reads what the flags name.
func (c *planCommand) read(p *program) (mesh.Update, error) {
	if c.Dir != "" {
		return file.Load(c.Dir)
	}
	name, in := c.File, io.Reader(p.stdin)
	if c.File == "-" {
		name = "stdin"
	} else {
		f, err := os.Open(c.File)
		if err != nil {
			return mesh.Update{}, err
		}
		defer f.Close()
		in = f
	}
	return kube.Read(name, in, kube.ReadOptions{LocationLabel: c.LocationLabel, Kilo: c.Kilo})
}

func offlineText(plan mesh.Plan, problems []mesh.Problem, standIns []string) string {
	var b strings.Builder
	for _, node := range standIns {
		fmt.Fprintf(&b, "# node %s has published no key yet, a stand-in is shown\n", node)
	}
	b.WriteString(strings.TrimSuffix(plan.String(), "\n"))
	for _, problem := range problems {
		fmt.Fprintf(&b, "\nproblem %s: %s", problem.Reason, problem)
	}
	return b.String()
}

func nodeNames(s mesh.Snapshot) (names []string) {
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return names
}
