package agents

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

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
		build := exec.Command("go", "build", "-o", program, "github.com/stillwire/stillwire/cmd/stillwire")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build stillwire: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// world is machines in locations, each a network behind the one router:
//
//	pod ── ada ─┐                                              ┌─ cleo ── pod
//	            ├─ 203.0.113.16/28 ── router ── 203.0.113.32/28 ─┤
//	pod ── ben ─┘                                              └─ dora ── pod
//
// The i-th machine has pods 10.42.i.0/24 and fd42:0:0:i::/64.
type world struct {
	t        *testing.T
	lab      *netns.Lab
	router   *netns.Namespace
	dir      string // of the manifests
	lans     map[string]*lan
	machines []*machine
	flows    int
	expected int // packets in clear text, of a control
}

type lan struct {
	number, hosts int
}

// machine is a node of the mesh.
type machine struct {
	*netns.Namespace
	w       *world
	name    string
	number  int
	spec    map[string]string // of the manifest
	created string            // as in the manifest; "": not said
	addr    netip.Addr        // IPv4, on its LAN
	box     *netns.Namespace  // the NAT before it; nil: none
	pod     *netns.Namespace
	pod4    netip.Addr
	pod6    netip.Addr
	state   string
	flags   []string
	agent   *netns.Process
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, lab: netns.NewLab(t), dir: t.TempDir(), lans: make(map[string]*lan)}
	w.router = w.lab.Namespace("router")
	w.router.Sysctl("net/ipv4/ip_forward", "1")
	w.router.Sysctl("net/ipv6/conf/all/forwarding", "1")
	// What stays within one LAN does not pass the router, though its bridge is in there.
	for _, f := range []string{"iptables", "ip6tables"} {
		if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-" + f); err == nil {
			w.router.Sysctl("net/bridge/bridge-nf-call-"+f, "0")
		}
	}
	w.router.NFT(
		// Before routing: the router has no way to these addresses, and would drop them unseen.
		"table inet watch { counter clear { }; chain pass { type filter hook prerouting priority -300; }; }",
		"table inet watch { set seen4 { type ipv4_addr . ipv4_addr . inet_proto; flags dynamic; size 1000; }; }",
		"table inet watch { set seen6 { type ipv6_addr . ipv6_addr . inet_proto; flags dynamic; size 1000; }; }",
		"add rule inet watch pass ip saddr { 10.42.0.0/16, 10.4.0.0/16 } add @seen4 { ip saddr . ip daddr . meta l4proto } counter name clear accept",
		"add rule inet watch pass ip daddr { 10.42.0.0/16, 10.4.0.0/16 } add @seen4 { ip saddr . ip daddr . meta l4proto } counter name clear accept",
		"add rule inet watch pass ip6 saddr { fd42::/16, fd04::/64 } add @seen6 { ip6 saddr . ip6 daddr . meta l4proto } counter name clear accept",
		"add rule inet watch pass ip6 daddr { fd42::/16, fd04::/64 } add @seen6 { ip6 saddr . ip6 daddr . meta l4proto } counter name clear accept",
	)
	t.Cleanup(func() {
		if n := w.clearText(); n != w.expected {
			seen, _ := run(w.router, "nft", "list", "table", "inet", "watch")
			t.Errorf("%d packets of the mesh passed the router in clear text:\n%s", n, seen)
		}
		if t.Failed() {
			w.dump()
		}
	})
	return w
}

// run runs a program in a namespace and returns what it printed.
func run(n *netns.Namespace, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	var out []byte
	err := n.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", strings.Join(args, " "), n, err, out)
	}
	return string(out), err
}

var packets = regexp.MustCompile(`packets (\d+)`)

// clearText is how many packets of the mesh passed the router without a tunnel.
func (w *world) clearText() int {
	out, err := run(w.router, "nft", "list", "counter", "inet", "watch", "clear")
	m := packets.FindStringSubmatch(out)
	if err != nil || m == nil {
		w.t.Fatalf("read the router's counter: %v: %s", err, out)
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// dump shows what the agents said, for a test that failed.
func (w *world) dump() {
	for _, m := range w.machines {
		if m.agent == nil {
			continue
		}
		lines := strings.Split(m.agent.Output(), "\n")
		w.t.Logf("%s said last:\n%s", m.name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// machine makes one in a location, with a pod.
func (w *world) machine(name, location string) *machine {
	l := w.lan(location)
	l.hosts++
	m := &machine{
		Namespace: w.lab.Namespace(name), w: w, name: name, number: len(w.machines) + 1,
		state: w.t.TempDir(), spec: map[string]string{"location": location},
	}
	m.addr = netip.AddrFrom4([4]byte{203, 0, 113, byte(16*l.number + 1 + l.hosts)})
	m.attach(l)
	m.addPod()
	w.machines = append(w.machines, m)
	m.spec["podCIDRs"] = fmt.Sprintf("[10.42.%d.0/24, 'fd42:0:0:%d::/64']", m.number, m.number)
	return m
}

// lan makes the network of a location, a bridge in the router.
func (w *world) lan(location string) *lan {
	if w.lans[location] == nil {
		l := &lan{number: len(w.lans) + 1}
		w.lans[location] = l
		w.router.IP(fmt.Sprintf("link add %s type bridge", l.bridge()), fmt.Sprintf("link set %s up", l.bridge()))
		w.router.AddAddrs(l.bridge(), fmt.Sprintf("203.0.113.%d/28", 16*l.number+1), fmt.Sprintf("2001:db8:%d::1/64", l.number))
	}
	return w.lans[location]
}

// routes are the ways to the router.
func (l *lan) routes() []string {
	return []string{fmt.Sprintf("route replace default via 203.0.113.%d", 16*l.number+1), fmt.Sprintf("route replace default via 2001:db8:%d::1", l.number)}
}

func (l *lan) bridge() string { return fmt.Sprintf("br%d", l.number) }

// attach gives the machine its cable to the router.
func (m *machine) attach(l *lan) {
	m.w.lab.Connect(m.w.router, m.Namespace)
	m.w.router.IP(fmt.Sprintf("link set %s master %s", m.name, l.bridge()))
	m.AddAddrs("router", m.addr.String()+"/28", fmt.Sprintf("2001:db8:%d::%d/64", l.number, m.number+1))
	m.IP(l.routes()...)
	m.Sysctl("net/ipv6/conf/router/keep_addr_on_down", "1")
	m.Sysctl("net/ipv4/ip_forward", "1")
	m.Sysctl("net/ipv6/conf/all/forwarding", "1")
}

func (m *machine) addPod() {
	m.pod = m.w.lab.Namespace("p" + m.name)
	m.w.lab.Connect(m.Namespace, m.pod)
	m.pod4, m.pod6 = netip.AddrFrom4([4]byte{10, 42, byte(m.number), 2}), netip.MustParseAddr(fmt.Sprintf("fd42:0:0:%d::2", m.number))
	m.AddAddrs("p"+m.name, fmt.Sprintf("10.42.%d.1/24", m.number), fmt.Sprintf("fd42:0:0:%d::1/64", m.number))
	m.pod.AddAddrs(m.name, m.pod4.String()+"/24", m.pod6.String()+"/64")
	m.pod.IP(fmt.Sprintf("route add default via 10.42.%d.1", m.number), fmt.Sprintf("route add default via fd42:0:0:%d::1", m.number))
}

// write makes the machine's manifest say what its spec does, all at once.
func (m *machine) write() {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: stillwire.dev/v1alpha1\nkind: MeshNode\nmetadata:\n  name: %s\n", m.name)
	if m.created != "" {
		fmt.Fprintf(&b, "  creationTimestamp: %s\n", m.created)
	}
	b.WriteString("spec:\n")
	for key, value := range m.spec {
		fmt.Fprintf(&b, "  %s: %s\n", key, value)
	}
	m.w.put(m.name+".yaml", b.String())
}

// put writes a manifest in one step, as an editor or a ConfigMap does.
func (w *world) put(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(filepath.Join(w.dir, "."+name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(w.dir, "."+name), path); err != nil {
		w.t.Fatal(err)
	}
}

// remove takes a machine out of the mesh, as an administrator does.
func (w *world) remove(m *machine) {
	for _, name := range []string{m.name + ".yaml", "status/" + m.name + ".yaml"} {
		if err := os.Remove(filepath.Join(w.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
}

// start starts the agent.
func (m *machine) start(flags ...string) {
	m.w.t.Helper()
	m.write()
	m.flags = flags
	m.restart()
}

// restart starts the agent with the flags it had.
func (m *machine) restart() {
	args := append([]string{"agent", "--dir", m.w.dir, "--node", m.name, "--state-dir", m.state}, m.flags...)
	m.agent = m.Start(exec.Command(program, args...))
}

// startAll starts all agents with the same flags.
func (w *world) startAll(flags ...string) {
	w.t.Helper()
	for _, m := range w.machines {
		m.start(flags...)
	}
	for _, m := range w.machines {
		w.await(m.name+" guards the mesh", 20*time.Second, m.guarded)
	}
}

// guarded reports whether the agent has set up the firewall, before which nothing of the mesh
// can be kept from leaving.
func (m *machine) guarded() bool {
	_, err := run(m.Namespace, "nft", "list", "chain", "inet", "stillwire", "out")
	return err == nil
}

// await waits for a condition, and fails the test when it does not come in time.
func (w *world) await(what string, within time.Duration, condition func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			w.t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}

// connected waits until every pod reaches every other.
func (w *world) connected(families ...int) {
	w.t.Helper()
	for _, from := range w.machines {
		for _, to := range w.machines {
			if from == to {
				continue
			}
			for _, f := range families {
				if err := from.pod.AwaitPing(to.podAddr(f)); err != nil {
					w.t.Fatalf("pod of %s to pod of %s: %v", from.name, to.name, err)
				}
			}
		}
	}
}

// machinesReached wants an answer for each pod from the outer address of each other machine, where
// its tunnel ends too.
func (w *world) machinesReached() {
	w.t.Helper()
	for _, from := range w.machines {
		for _, to := range w.machines {
			if from == to {
				continue
			}
			if err := from.pod.AwaitPing(to.addr); err != nil {
				w.t.Fatalf("pod of %s to the machine %s: %v", from.name, to.name, err)
			}
		}
	}
}

func (m *machine) podAddr(family int) netip.Addr {
	if family == 6 {
		return m.pod6
	}
	return m.pod4
}

// flow starts a flow between two pods, 200 packets a second.
func (w *world) flow(from, to *machine, family int) *netns.Flow {
	w.t.Helper()
	return w.flowBetween(from.pod, to.pod, from.podAddr(family), to.podAddr(family))
}

// control starts a flow between two machines that has no tunnel to pass.
func (w *world) control(from, to *machine) *netns.Flow {
	w.t.Helper()
	return w.flowBetween(from.Namespace, to.Namespace, from.addr, to.addr)
}

func (w *world) flowBetween(from, to *netns.Namespace, src, dst netip.Addr) *netns.Flow {
	w.flows++
	return netns.StartFlow(w.t, netns.FlowOptions{
		From: from, To: to,
		Src: netip.AddrPortFrom(src, 0), Dst: netip.AddrPortFrom(dst, uint16(4000+w.flows)), Rate: 200,
	})
}
