package main

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/file"
	"github.com/stillwire/stillwire/mesh/kube"
)

// factFlags are where an agent hears of the mesh, and is heard.
type factFlags struct {
	Dir           string `placeholder:"DIR" help:"Directory of manifests: the nodes and peers of the mesh. It is watched."`
	InCluster     bool   `help:"The cluster that this pod runs in: its Nodes, MeshNodes and Peers."`
	Join          string `aliases:"kubeconfig" placeholder:"FILE" help:"The cluster of this kubeconfig, from a machine that need not be in it."`
	KubeContext   string `placeholder:"NAME" help:"With --join: context of the kubeconfig (its current one)."`
	Namespace     string `placeholder:"NAME" help:"Namespace of the agents, where Secrets with preshared keys are (that of the pod, or stillwire)."`
	PodCIDRs      string `name:"pod-cidrs" enum:"node,cilium,calico" default:"node" placeholder:"OF" help:"Who gives pods their addresses: node (Node.spec.podCIDRs), cilium (cluster-pool) or calico (its IPAM)."`
	LocationLabel string `default:"topology.kubernetes.io/region" placeholder:"LABEL" help:"Label of a Node that says where it is (topology.kubernetes.io/region)."`
}

// facts are where an agent hears of the mesh, and is heard.
type facts struct {
	sources   []mesh.Source
	publisher mesh.Publisher
	control   func() []netip.Addr       // where the sources are asked; nil: nowhere
	report    func(*mesh.Status)        // nil: nobody hears of it
	run       func(ctx context.Context) // what report hands over is written there; nil: nothing is
}

// cluster reports whether the facts come from Kubernetes.
func (f *factFlags) cluster() bool { return f.InCluster || f.Join != "" }

// open reads what is needed to ask, and asks nobody yet. Beside a cluster a directory may hold more
// peers.
func (f *factFlags) open(c *agentCommand, node string, log zerolog.Logger) (*facts, error) {
	out := &facts{}
	switch {
	case !f.cluster() && f.Dir == "":
		return nil, &wrong{errors.New("an agent must know where its mesh is written down: give --dir DIR for a directory of manifests, --in-cluster in a pod, or --join KUBECONFIG")}
	case f.InCluster && f.Join != "":
		return nil, &wrong{errors.New("--in-cluster and --join are two clusters: leave one out")}
	}
	if f.Dir != "" {
		source := file.New(file.Options{Dir: f.Dir, Resync: c.ResyncPeriod, Log: log})
		out.sources, out.publisher = append(out.sources, source), source
	}
	if !f.cluster() {
		return out, nil
	}
	client, err := kube.Connect(kube.ClientOptions{
		Kubeconfig: f.Join, Context: f.KubeContext, Namespace: f.Namespace, UserAgent: "stillwire-agent",
	})
	if err != nil {
		return nil, &wrong{err}
	}
	source, err := kube.NewSource(client, kube.SourceOptions{
		LocationLabel: f.LocationLabel, PodCIDRs: kube.PodCIDRs(f.PodCIDRs), ClusterFile: filepath.Join(c.StateDir, "cluster"), Log: log,
	})
	if err != nil {
		return nil, err
	}
	reporter := kube.NewReporter(client, source, node, log)
	out.sources, out.publisher = append(out.sources, source), kube.NewPublisher(client, source)
	out.report, out.run, out.control = reporter.Report, reporter.Run, source.ControlPlane
	return out, nil
}
