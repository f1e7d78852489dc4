//go:build linux

package agents

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/test/kube/cluster"
	"github.com/stillwire/stillwire/test/netns"
)

// program is the built stillwire.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "agents-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "stillwire")
		build := exec.Command("go", "build", "-o", program, "./cmd/stillwire")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build stillwire: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// root of the repository, from here.
const root = "../../.."

// world is machines on one network, each with a pod, and a cluster that all reach by their wires.
type world struct {
	t        *testing.T
	lab      *netns.Lab
	hub      *netns.Namespace
	cluster  *cluster.Cluster
	machines []*machine
	flows    int
}

// machine is a node. The i-th has pods 10.42.i.0/24.
type machine struct {
	*netns.Namespace
	w      *world
	name   string
	number int
	addr   netip.Addr
	pod    *netns.Namespace
	state  string
	config string // kubeconfig
	wire   *wire
	flags  []string
	agent  *netns.Process
}

// newWorld starts a cluster with what is shipped, and a network.
func newWorld(t *testing.T) *world {
	w := &world{t: t, lab: netns.NewLab(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Controllers: true})
	if err != nil {
		t.Fatal(err)
	}
	w.cluster = c
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, pattern := range []string{"crds/*.yaml", "manifests/rights.yaml", "manifests/policy.yaml"} {
		paths, err := filepath.Glob(filepath.Join(root, "deploy", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no file is deploy/%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c.Apply(t, string(text))
		}
	}
	w.hub = w.lab.Namespace("hub")
	w.hub.IP("link add br0 type bridge", "link set br0 up")
	t.Cleanup(func() {
		if t.Failed() {
			w.dump()
		}
	})
	return w
}

// dump shows what the agents said, for a test that failed.
func (w *world) dump() {
	for _, m := range w.machines {
		if m.agent != nil {
			lines := strings.Split(m.agent.Output(), "\n")
			w.t.Logf("%s said last:\n%s", m.name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	}
}

// machine makes a node of the cluster with a pod.
func (w *world) machine(name string) *machine {
	m := w.wired(name)
	m.register()
	return m
}

// wired makes a machine with a pod.
func (w *world) wired(name string) *machine {
	number := len(w.machines) + 1
	m := &machine{
		Namespace: w.lab.Namespace(name), w: w, name: name, number: number, state: w.t.TempDir(),
		addr: netip.AddrFrom4([4]byte{203, 0, 113, byte(number)}),
	}
	w.lab.Connect(w.hub, m.Namespace)
	w.hub.IP(fmt.Sprintf("link set %s master br0", name))
	m.AddAddrs("hub", m.addr.String()+"/24")
	m.Sysctl("net/ipv4/ip_forward", "1")
	m.pod = w.lab.Namespace("p" + name)
	w.lab.Connect(m.Namespace, m.pod)
	m.AddAddrs("p"+name, fmt.Sprintf("10.42.%d.1/24", number))
	m.pod.AddAddrs(name, m.podAddr().String()+"/24")
	m.pod.IP(fmt.Sprintf("route add default via 10.42.%d.1", number))
	w.machines = append(w.machines, m)
	return m
}

func (m *machine) podAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 42, byte(m.number), 2}) }

// register makes the Node, and the token and the wire with which its agent reaches the API server.
func (m *machine) register() {
	t := m.w.t
	m.w.cluster.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {podCIDR: 10.42.%d.0/24, podCIDRs: [10.42.%[2]d.0/24]}\n", m.name, m.number))
	config, err := m.w.cluster.NodeToken(t.Context(), kube.DefaultNamespace, "stillwire", m.name)
	if err != nil {
		t.Fatal(err)
	}
	m.connect(config)
}

func (m *machine) connect(config *rest.Config) {
	t := m.w.t
	path, err := m.w.cluster.Kubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	m.config = path
	at, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if m.wire == nil {
		m.wire = newWire(t, m.Namespace, at.Host, at.Host)
	}
}

// start starts the agent.
func (m *machine) start(flags ...string) {
	m.flags = flags
	m.restart()
}

// restart starts the agent with the flags it had.
func (m *machine) restart() {
	args := append([]string{"agent", "--join", m.config, "--node", m.name, "--state-dir", m.state}, m.flags...)
	m.agent = m.Start(exec.Command(program, args...))
}

func (w *world) startAll(flags ...string) {
	for _, m := range w.machines {
		m.start(flags...)
	}
}

// connected waits until every pod reaches every other.
func (w *world) connected(machines ...*machine) {
	w.t.Helper()
	for _, from := range machines {
		for _, to := range machines {
			if from == to {
				continue
			}
			if err := from.pod.AwaitPing(to.podAddr()); err != nil {
				w.t.Fatalf("pod of %s to pod of %s: %v", from.name, to.name, err)
			}
		}
	}
}

// flow starts a flow between two pods, 200 packets a second.
func (w *world) flow(from, to *machine) *netns.Flow {
	w.t.Helper()
	w.flows++
	return netns.StartFlow(w.t, netns.FlowOptions{
		From: from.pod, To: to.pod, Rate: 200,
		Src: netip.AddrPortFrom(from.podAddr(), 0), Dst: netip.AddrPortFrom(to.podAddr(), uint16(4000+w.flows)),
	})
}

// await waits for a condition, and fails the test with what it last said when it does not come in
// time.
func (w *world) await(within time.Duration, condition func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("after %v still: %v", within, err)
		case <-tick.C:
		}
	}
}

// said waits for a text in what an agent logs.
func (m *machine) said(within time.Duration, text string) {
	m.w.t.Helper()
	m.w.await(within, func() error {
		if !strings.Contains(m.agent.Output(), text) {
			return fmt.Errorf("%s has not said %q", m.name, text)
		}
		return nil
	})
}

// routed waits until a machine has, or has not, a route into the tunnel to a prefix.
func (m *machine) routed(within time.Duration, prefix string, want bool) {
	m.w.t.Helper()
	m.w.await(within, func() error {
		out, err := m.run("ip", "route", "show", "table", "7107")
		if err != nil {
			return err
		}
		if got := strings.Contains(out, prefix+" dev stillwire0"); got != want {
			return fmt.Errorf("%s has the routes\n%s", m.name, out)
		}
		return nil
	})
}

// run runs a program on the machine and returns what it printed.
func (m *machine) run(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	var out []byte
	err := m.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", strings.Join(args, " "), m.name, err, out)
	}
	return string(out), err
}
