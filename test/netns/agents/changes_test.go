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

// three are machines in a location each:
//
//	pod ── ada ─┐
//	pod ── ben ─┼─ router
//	pod ── cleo ┘
func three(t *testing.T) (w *world, ada, ben, cleo *machine) {
	w = newWorld(t)
	return w, w.machine("ada", "berlin"), w.machine("ben", "oslo"), w.machine("cleo", "rome")
}

// While a node joins, changes all that it can, and leaves, the pairs that it is no part of lose
// no packet: neither those of the mesh nor the control beside it, which has no tunnel.
func TestPairsThatAChangeIsNotAboutLoseNothing(t *testing.T) {
	w, ada, ben, cleo := three(t)
	ada.start(ranges...)
	ben.start(ranges...)
	w.await("ada and ben guard the mesh", 20*time.Second, func() bool { return ada.guarded() && ben.guarded() })
	for _, family := range []int{4, 6} {
		if err := ada.pod.AwaitPing(ben.podAddr(family)); err != nil {
			t.Fatal(err)
		}
	}
	flows := []*netns.Flow{w.control(ada, ben), w.flow(ada, ben, 4), w.flow(ben, ada, 4), w.flow(ada, ben, 6), w.flow(ben, ada, 6)}

	cleo.start(ranges...)
	talks := func(what string) {
		t.Helper()
		w.await("cleo's pod is reached again: "+what, 30*time.Second, func() bool {
			answered, err := ada.pod.Ping(cleo.pod4, 1, 100)
			return err == nil && answered == 1
		})
	}
	talks("joined")
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"another location", func() { cleo.spec["location"] = "lima"; cleo.write() }},
		{"another port", func() { cleo.spec["listenPort"] = "51999"; cleo.write() }},
		{"more prefixes", func() { cleo.spec["extraPrefixes"] = "[192.168.77.0/24, 192.168.78.0/24]"; cleo.write() }},
		{"fewer prefixes", func() { cleo.spec["extraPrefixes"] = "[192.168.78.0/24]"; cleo.write() }},
		{"other pods", cleo.renumberPods},
		{"another address", cleo.renumber},
		{"another key", func() {
			cleo.agent.Kill()
			if err := os.RemoveAll(cleo.state); err != nil {
				t.Fatal(err)
			}
			cleo.restart()
		}},
		{"another MTU", func() { cleo.spec["mtu"] = "1300"; cleo.write() }},
		{"bad values", func() { cleo.spec["endpoint"] = "127.0.0.1:1"; cleo.spec["mtu"] = "7"; cleo.write() }},
	} {
		step.do()
		talks(step.what)
	}
	cleo.agent.Kill()
	w.remove(cleo)
	w.await("ada has no route to cleo", 20*time.Second, func() bool { return !ada.has("route show table 7107", "10.42.133.0/24") })
	for i, report := range netns.StopAll(flows...) {
		t.Logf("flow %d: %s", i, report)
		if len(report.Lost) > 0 {
			t.Errorf("flow %d lost %d of %d, first at %s: %v", i, len(report.Lost), report.Sent, report.Lost[0].At.Format("15:04:05.000"), report.Lost[0].Err)
		}
	}
}

// has reports whether a line of what ip(8) prints begins with a text.
func (m *machine) has(command, begin string) bool {
	out, err := run(m.Namespace, append([]string{"ip"}, strings.Fields(command)...)...)
	if err != nil {
		m.w.t.Fatal(err)
	}
	return strings.Contains("\n"+out, "\n"+begin)
}

// renumberPods gives the machine's pod an address of other pods.
func (m *machine) renumberPods() {
	host, pod := "p"+m.name, m.name
	m.pod4 = addr4(10, 42, byte(m.number+130), 2)
	m.IP("addr flush dev "+host, fmt.Sprintf("addr add 10.42.%d.1/24 dev %s", m.number+130, host))
	m.pod.IP("addr flush dev "+pod, fmt.Sprintf("addr add %s/24 dev %s", m.pod4, pod), fmt.Sprintf("route replace default via 10.42.%d.1", m.number+130))
	m.spec["podCIDRs"] = fmt.Sprintf("[10.42.%d.0/24]", m.number+130)
	m.write()
}

// renumber gives the machine another address on its LAN.
func (m *machine) renumber() {
	old := m.addr
	b := old.As4()
	b[3] += 5
	m.addr = addr4(b[0], b[1], b[2], b[3])
	m.IP("addr del " + old.String() + "/28 dev router")
	m.AddAddrs("router", m.addr.String()+"/28")
	m.IP(fmt.Sprintf("route replace default via 203.0.113.%d", (b[3]-5)&^15+1))
}

// A rejected directory, a mass removal, a source that is gone: what runs goes on.
func TestWhatASourceLosesAtOnceIsNotTakenAway(t *testing.T) {
	w, ada, ben, _ := three(t)
	for _, name := range []string{"dora", "emil", "fay"} {
		w.machine(name, name)
	}
	w.startAll(ranges...)
	w.connected(4)
	w.await("ben keeps what it knows", 20*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(ben.state, "facts"))
		return err == nil
	})
	flow := w.flow(ada, ben, 4)
	hidden := w.dir + ".hidden"
	if err := os.Rename(w.dir, hidden); err != nil {
		t.Fatal(err)
	}
	w.await("ada says that its source is down", 20*time.Second, func() bool { return strings.Contains(ada.agent.Output(), "SourceDown") })
	ben.agent.Kill()
	ben.restart()
	if err := flow.AwaitArrival(t.Context()); err != nil {
		t.Errorf("ben was started anew while every source is down: %v", err)
	}
	if err := os.Rename(hidden, w.dir); err != nil {
		t.Fatal(err)
	}
	w.await("ada sees its source again", 20*time.Second, func() bool { return strings.Contains(ada.agent.Output(), "problem ended") })
	flow.Stop()
	if bad := filepath.Join(w.dir, "ben.yaml"); os.WriteFile(bad, []byte("kind: [MeshNode\n"), 0o644) != nil {
		t.Fatal("write a broken manifest")
	}
	w.await("ada names the broken manifest", 20*time.Second, func() bool { return strings.Contains(ada.agent.Output(), "ben.yaml:") })
	if answered, err := ada.pod.Ping(ben.pod4, 3, 100); err != nil || answered != 3 {
		t.Errorf("a manifest that cannot be read costs what it said before: %d answers, %v", answered, err)
	}
}
