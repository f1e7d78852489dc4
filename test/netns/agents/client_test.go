package agents

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
)

// client is a laptop at home with wireguard-go and wg(8) as they come, and nothing of ours.
type client struct {
	*machine
	addr  netip.Addr // in the tunnel
	iface string
}

// client makes a laptop that has a tunnel to each of the machines, through which it reaches those
// behind it too, and tells the mesh of it.
func (w *world) client(t *testing.T, behind map[*machine][]*machine, machines ...*machine) *client {
	c := &client{machine: w.behindNAT("laptop"), addr: netip.MustParseAddr("10.4.200.1"), iface: w.lab.Name("l")}
	w.machines = w.machines[:len(w.machines)-1] // it runs no agent
	stock := filepath.Join(t.TempDir(), "wireguard-go")
	if out, err := exec.Command("go", "build", "-o", stock, "golang.zx2c4.com/wireguard").CombinedOutput(); err != nil {
		t.Fatalf("build wireguard-go: %v: %s", err, out)
	}
	key, err := device.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	w.put("laptop.yaml", fmt.Sprintf("apiVersion: stillwire.dev/v1alpha1\nkind: Peer\nmetadata: {name: laptop}\nspec: {publicKey: %s, allowedIPs: [%s/32]}\n", key.Public(), c.addr))
	c.Start(exec.Command(stock, "-f", c.iface))
	w.await("wireguard-go is up", 20*time.Second, func() bool { return c.has("link show", "") && c.hasLink() })

	var conf strings.Builder
	fmt.Fprintf(&conf, "[Interface]\nPrivateKey = %s\n", key.Reveal())
	for _, m := range machines {
		allowed := fmt.Sprintf("10.42.%d.0/24", m.number)
		for _, other := range behind[m] {
			allowed += fmt.Sprintf(", 10.42.%d.0/24", other.number)
		}
		fmt.Fprintf(&conf, "[Peer]\nPublicKey = %s\nEndpoint = %s:51820\nAllowedIPs = %s\nPersistentKeepalive = 5\n", w.keyOf(m), m.addr, allowed)
	}
	file := filepath.Join(t.TempDir(), "laptop.conf")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(c.Namespace, "wg", "setconf", c.iface, file); err != nil {
		t.Fatal(err)
	}
	c.IP("addr add "+c.addr.String()+"/32 dev "+c.iface, "link set "+c.iface+" up", "route add 10.42.0.0/16 dev "+c.iface)
	return c
}

func (c *client) hasLink() bool {
	_, err := run(c.Namespace, "wg", "show", c.iface)
	return err == nil
}

// keyOf waits for the public key that a machine publishes.
func (w *world) keyOf(m *machine) (key string) {
	w.await(m.name+" publishes its key", 20*time.Second, func() bool {
		text, err := os.ReadFile(filepath.Join(w.dir, "status", m.name+".yaml"))
		_, rest, found := strings.Cut(string(text), "publicKey: ")
		key, _, _ = strings.Cut(rest, "\n")
		return err == nil && found
	})
	return key
}

// A client with nothing of ours keeps its connection while its home gets another address, and
// while the mesh around it changes; where it has gone is never overwritten.
//
//	laptop ── NAT ── router ── ada ── pod
//	                       └── ben ── pod
func TestAStockClientRoams(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.machine("ada", "berlin"), w.machine("ben", "oslo")
	w.startAll(ranges...)
	laptop := w.client(t, nil, ada, ben)
	for _, m := range []*machine{ada, ben} {
		if err := laptop.AwaitPing(m.pod4); err != nil {
			t.Fatalf("laptop to the pod of %s: %v", m.name, err)
		}
	}
	flow := w.flowBetween(ada.pod, laptop.Namespace, ada.pod4, laptop.addr)
	if err := flow.AwaitSent(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	moved := time.Now()
	laptop.box.IP("addr del 203.0.113.50/28 dev router")
	laptop.box.AddAddrs("router", "203.0.113.55/28")
	laptop.box.IP("route replace default via 203.0.113.49")
	laptop.box.FlushConntrack()
	if err := flow.AwaitArrival(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the laptop is reached %v after its home has another address", time.Since(moved).Round(time.Millisecond))
	flow.Stop()

	quiet := len(ada.quiet())
	flow = w.flowBetween(ada.pod, laptop.Namespace, ada.pod4, laptop.addr)
	for i := range 5 {
		ben.spec["extraPrefixes"] = fmt.Sprintf("[192.168.%d.0/24]", 90+i)
		ben.write()
		w.await("ada has seen it", 20*time.Second, func() bool { return ada.has("route show table 7107", fmt.Sprintf("192.168.%d.0/24", 90+i)) })
	}
	if r := flow.Stop(); len(r.Lost) > 0 {
		t.Errorf("lost %d of %d while other members change", len(r.Lost), r.Sent)
	}
	if said := ada.quiet()[quiet:]; strings.Contains(said, `"endpoint"`) || strings.Contains(said, "laptop") {
		t.Errorf("the laptop was touched: %s", said)
	}
}

// In the location topology a client has a tunnel to each leader, and reaches all that they carry.
//
//	laptop ── NAT ── router ─┬─ ada (leads) ── ben
//	                         └─ cleo (leads) ── dora
func TestAStockClientReachesLocationsByTheirLeaders(t *testing.T) {
	w, ada, ben, cleo, dora := four(t)
	west, behindWest := w.leaderOf(ada, ben)
	east, behindEast := w.leaderOf(cleo, dora)
	laptop := w.client(t, map[*machine][]*machine{west: {behindWest}, east: {behindEast}}, west, east)
	for _, m := range w.machines {
		if err := laptop.AwaitPing(m.pod4); err != nil {
			t.Errorf("laptop to the pod of %s: %v", m.name, err)
		}
		if err := m.pod.AwaitPing(laptop.addr); err != nil {
			t.Errorf("pod of %s to the laptop: %v", m.name, err)
		}
	}
}
