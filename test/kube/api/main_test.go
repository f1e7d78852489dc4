//go:build linux

package api

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/test/kube/cluster"
)

// shared is the cluster of the tests that do not stop it. Names of objects begin with that of the
// test.
var shared *cluster.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Controllers: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = c
	defer func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := install(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// root of the repository, from here.
const root = "../../.."

// shipped is the text of files below deploy.
func shipped(patterns ...string) (texts []string, err error) {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, "deploy", pattern))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no file is deploy/%s: %w", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			texts = append(texts, string(text))
		}
	}
	return texts, nil
}

// installed are the files that an operator applies before the agents.
func installed() ([]string, error) {
	return shipped("crds/*.yaml", "manifests/rights.yaml", "manifests/policy.yaml")
}

func install(c *cluster.Cluster) error {
	texts, err := installed()
	if err != nil {
		return err
	}
	return c.ApplyAll(context.Background(), texts...)
}

// as is a client with the rights of a configuration.
func as(t *testing.T, config *rest.Config) *kube.Client {
	t.Helper()
	client, err := kube.NewClient(config, kube.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// agentOf is the configuration of the agent on a node.
func agentOf(t *testing.T, c *cluster.Cluster, node string) *rest.Config {
	t.Helper()
	config, err := c.NodeToken(t.Context(), kube.DefaultNamespace, "stillwire", node)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// startCluster starts a cluster of the test's own.
func startCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}
