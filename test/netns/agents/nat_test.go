package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/test/netns"
)

// behindNAT makes a machine at home, behind a router that gives it the one address it has
// (RFC 4787: endpoint-independent as long as ports are free, address-dependent filtering).
func (w *world) behindNAT(name string) *machine {
	l := w.lan("nat-" + name)
	box := w.lab.Namespace("n" + name)
	w.lab.Connect(w.router, box)
	w.router.IP(fmt.Sprintf("link set n%s master %s", name, l.bridge()))
	box.Sysctl("net/ipv4/ip_forward", "1")
	box.AddAddrs("router", fmt.Sprintf("203.0.113.%d/28", 16*l.number+2))
	box.IP(fmt.Sprintf("route add default via 203.0.113.%d", 16*l.number+1))
	// What nobody asked for is dropped at the door: it must not be remembered as a connection, and
	// so take the port that the machine behind is about to use.
	box.NFT("table ip nat { chain out { type nat hook postrouting priority 100; oifname router masquerade; }; }",
		"table ip nat { chain door { type filter hook input priority 0; iifname router ct state new drop; }; }",
		"table ip nat { chain in { type filter hook forward priority 0; iifname router ct state new drop; }; }")

	m := &machine{
		Namespace: w.lab.Namespace(name), w: w, name: name, number: len(w.machines) + 1, state: w.t.TempDir(),
		spec: map[string]string{"location": "nat-" + name}, addr: addr4(192, 168, byte(l.number), 2), box: box,
	}
	w.lab.Connect(box, m.Namespace)
	box.AddAddrs(name, fmt.Sprintf("192.168.%d.1/24", l.number))
	m.AddAddrs("n"+name, m.addr.String()+"/24")
	m.IP(fmt.Sprintf("route add default via 192.168.%d.1", l.number))
	m.Sysctl("net/ipv4/ip_forward", "1")
	m.addPod()
	m.spec["podCIDRs"] = fmt.Sprintf("[10.42.%d.0/24]", m.number)
	w.machines = append(w.machines, m)
	return m
}

// Two machines behind NATs reach each other with the help of one that can be reached:
//
//	pod ── ada ── NAT ── router ── NAT ── ben ── pod
//	                       └── cleo ── pod
func TestMachinesBehindNATsReachEachOther(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.behindNAT("ada"), w.behindNAT("ben")
	cleo := w.machine("cleo", "rome")
	w.startAll(ranges...)
	w.connected(4)
	through := w.passing("10.42.1.0/24", cleo)
	flows := []*netns.Flow{w.flow(ada, ben, 4), w.flow(ben, ada, 4)}
	for _, f := range flows {
		if err := f.AwaitSent(t.Context(), 300); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range netns.StopAll(flows...) {
		if len(r.Lost) > 0 {
			t.Errorf("flow %d between the two lost %d of %d", i, len(r.Lost), r.Sent)
		}
	}
	if n := through(); n > 0 {
		t.Errorf("%d packets took the way by cleo, want a tunnel between the two", n)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "status", "cleo.yaml"))
	if err != nil || !strings.Contains(string(text), "learned:") {
		t.Errorf("cleo does not say where it sees the two: %s, %v", text, err)
	}
}

// passing counts what a machine forwards from a prefix.
func (w *world) passing(prefix string, m *machine) func() int {
	m.NFT("table inet count { counter passed { }; chain f { type filter hook forward priority 0; }; }",
		fmt.Sprintf("add rule inet count f ip saddr %s counter name passed", prefix))
	return func() int {
		out, err := run(m.Namespace, "nft", "list", "counter", "inet", "count", "passed")
		n := 0
		if found := packets.FindStringSubmatch(out); err != nil || found == nil {
			w.t.Fatalf("read a counter: %v: %s", err, out)
		} else if _, err := fmt.Sscan(found[1], &n); err != nil {
			w.t.Fatal(err)
		}
		return n
	}
}

// A machine behind a NAT that forgets it, and takes other ports, is back within the interval of
// its keepalive, and what it says of itself does not change.
func TestANATThatForgetsIsFollowed(t *testing.T) {
	w := newWorld(t)
	ada, cleo := w.behindNAT("ada"), w.machine("cleo", "rome")
	ada.spec["persistentKeepalive"] = "5"
	w.startAll(ranges...)
	w.connected(4)
	flow := w.flow(cleo, ada, 4) // ada itself says nothing
	if err := flow.AwaitSent(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	ada.box.NFT("insert rule ip nat out oifname router udp dport 51820 masquerade to :40000-40100")
	ada.box.FlushConntrack()
	forgot := time.Now()
	if err := flow.AwaitArrival(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("reached again %v after the NAT forgot it", time.Since(forgot).Round(time.Millisecond))
	flow.Stop()
}
