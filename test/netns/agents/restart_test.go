package agents

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stillwire/stillwire/test/netns"
)

func addr4(a, b, c, d byte) netip.Addr { return netip.AddrFrom4([4]byte{a, b, c, d}) }

// An agent that is killed and started anew keeps its key and its address; one-way traffic in
// either direction and TCP connections go on, and nothing of them leaves without a tunnel.
func TestKilledAndStartedAnew(t *testing.T) {
	w, ada, ben, cleo := three(t)
	w.startAll(ranges...)
	w.connected(4)
	in, out, control := w.flow(ben, ada, 4), w.flow(ada, ben, 4), w.flow(ben, cleo, 4)
	ctx, hangUp := context.WithCancel(t.Context())
	var tcp sync.WaitGroup
	tcp.Go(func() {
		if r, err := netns.Exchange(ctx, ben.pod, ada.pod, netip.AddrPortFrom(ada.pod4, 0), 0, 100_000); err != nil {
			t.Errorf("the TCP connection broke: %v (%s)", err, r)
		}
	})
	before := ada.meshAddress()
	var gaps []time.Duration
	for range 5 {
		if err := in.AwaitSent(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		ada.agent.Kill()
		killed := time.Now()
		ada.restart()
		for _, f := range []*netns.Flow{in, out} {
			if err := f.AwaitArrival(t.Context()); err != nil {
				t.Fatalf("after kill -9: %v", err)
			}
		}
		gaps = append(gaps, time.Since(killed))
	}
	hangUp()
	tcp.Wait()
	if after := ada.meshAddress(); after != before {
		t.Errorf("the mesh address was %s and is %s", before, after)
	}
	slices.Sort(gaps)
	t.Logf("traffic both ways back after kill -9: p50 %v, longest %v", gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
	reports := netns.StopAll(in, out, control)
	t.Logf("in: %s; out: %s; a pair that has no part in it: %s", reports[0], reports[1], reports[2])
	if n := len(reports[2].Lost); n > 0 {
		t.Errorf("a pair that has no part in it lost %d packets", n)
	}
}

// meshAddress is the IPv4 address on the tunnel's interface.
func (m *machine) meshAddress() string {
	out, err := run(m.Namespace, "ip", "-4", "-o", "addr", "show", "dev", "stillwire0")
	if err != nil {
		m.w.t.Fatal(err)
	}
	for _, field := range strings.Fields(out) {
		if strings.HasPrefix(field, "10.4.") {
			return field
		}
	}
	return ""
}

// While no agent runs, nothing of what it carried leaves by another way, whatever else of it
// is taken away.
func TestADeadAgentLeaksNothing(t *testing.T) {
	w, ada, ben, _ := three(t)
	w.startAll(ranges...)
	w.connected(4, 6)
	ada.agent.Kill()
	flows := []*netns.Flow{w.flow(ada, ben, 4), w.flow(ada, ben, 6)}
	for _, take := range []string{"", "link del stillwire0", "route flush table 7107", "-6 route flush table 7107", "rule del priority 7107", "-6 rule del priority 7107"} {
		if take != "" {
			if _, err := run(ada.Namespace, append([]string{"ip"}, strings.Fields(take)...)...); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range flows {
			if err := f.AwaitSent(t.Context(), 50); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.clearText(); n > 0 {
			t.Fatalf("after %q %d packets left in clear text", take, n)
		}
	}
	netns.StopAll(flows...)
	ada.restart()
	w.connected(4, 6)
}

// The control: where all that an agent made is taken away, packets do leave in clear text, and are
// counted.
func TestTheRouterSeesClearText(t *testing.T) {
	w, ada, ben, _ := three(t)
	w.startAll(ranges...)
	w.connected(4)
	ada.agent.Kill()
	if _, err := run(ada.Namespace, program, "uninstall", "--state-dir", ada.state); err != nil {
		t.Fatal(err)
	}
	ada.Sysctl("net/ipv4/ip_forward", "1")
	flow := w.flow(ada, ben, 4)
	if err := flow.AwaitSent(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	flow.Stop()
	if w.expected = w.clearText(); w.expected < 50 {
		t.Errorf("the router saw %d packets in clear text, want 50 and more", w.expected)
	}
}

// A second agent on the interface of a first one refuses, and says who has it.
func TestASecondAgentRefuses(t *testing.T) {
	w, ada, _, _ := three(t)
	w.startAll(ranges...)
	w.connected(4)
	first := ada.agent
	ada.restart()
	if err := ada.agent.Wait(10 * time.Second); err == nil {
		t.Error("the second agent ended well")
	}
	if out := ada.agent.Output(); !strings.Contains(out, "stillwire0 is served by process") {
		t.Errorf("the second agent says %q, want who has the interface", out)
	}
	ada.agent = first
	w.connected(4)
}

// With --standby a second agent waits for the end of the first one, and then stands in its place
// within the time that a process needs to start.
func TestASecondAgentTakesThePlaceOfTheFirst(t *testing.T) {
	w, ada, ben, _ := three(t)
	w.startAll(ranges...)
	w.connected(4)
	flow := w.flow(ada, ben, 4)
	first := ada.agent
	ada.start(append(slices.Clone(ranges), "--standby")...)
	second := ada.agent
	waits := func() bool {
		return strings.Contains(second.Output(), "another agent serves this machine, waiting for its end")
	}
	w.await("the second agent waits", 10*time.Second, waits)
	// Nothing is lost while it does.
	if err := flow.AwaitSent(t.Context(), 200); err != nil {
		t.Fatal(err)
	}
	ended := netns.Window{From: flow.UnderWaySince(time.Now())}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	if err := flow.AwaitArrival(t.Context()); err != nil {
		t.Fatalf("%v: the second agent says %s", err, second.Output())
	}
	ended.To = time.Now()
	r := flow.Stop()
	t.Logf("%v", r)
	if lost := r.LostOutside(ended); len(lost) > 0 {
		t.Errorf("%d packets are lost while two agents run", len(lost))
	}
	w.connected(4)
}
