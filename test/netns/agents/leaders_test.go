package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/test/netns"
)

// four are two machines in each of two locations, in the location topology:
//
//	pod ── ada ─┬─ berlin ── router ── oslo ─┬─ cleo ── pod
//	pod ── ben ─┘                            └─ dora ── pod
func four(t *testing.T, flags ...string) (w *world, ada, ben, cleo, dora *machine) {
	w = newWorld(t)
	ada, ben, cleo, dora = w.machine("ada", "berlin"), w.machine("ben", "berlin"), w.machine("cleo", "oslo"), w.machine("dora", "oslo")
	w.startAll(append(append([]string{"--topology", "location"}, ranges...), flags...)...)
	w.connected(4, 6)
	return w, ada, ben, cleo, dora
}

// claims reports whether the machine says that it leads its location.
func (m *machine) claims() bool {
	text, err := os.ReadFile(filepath.Join(m.w.dir, "status", m.name+".yaml"))
	return err == nil && strings.Contains(string(text), "leads:")
}

// leaderOf waits until exactly one of two machines leads.
func (w *world) leaderOf(a, b *machine) (leader, other *machine) {
	w.t.Helper()
	w.await("one of "+a.name+" and "+b.name+" leads", 30*time.Second, func() bool { return a.claims() != b.claims() })
	if a.claims() {
		return a, b
	}
	return b, a
}

func TestALeaderThatFailsIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		name      string
		fail, end func(m *machine)
	}{
		{"its agent is killed", func(m *machine) { m.agent.Kill() }, (*machine).restart},
		{"its tunnels carry nothing", func(m *machine) {
			m.NFT("table inet mute { chain f { type filter hook input priority -400; udp dport 51820 drop; }; }")
		}, func(m *machine) { m.NFT("delete table inet mute") }},
		{"it is cut off", func(m *machine) { m.IP("link set router down") }, func(m *machine) {
			m.IP("link set router up")
			m.defaultRoute()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, ada, ben, cleo, _ := four(t)
			leader, other := w.leaderOf(ada, ben)
			flow, back := w.flow(other, cleo, 4), w.flow(cleo, other, 4)
			if err := flow.AwaitSent(t.Context(), 200); err != nil {
				t.Fatal(err)
			}
			tt.fail(leader)
			failed := time.Now()
			w.await(other.name+" leads", 60*time.Second, other.claims)
			claimed := time.Since(failed)
			for _, f := range []*netns.Flow{flow, back} {
				if err := f.AwaitArrival(t.Context()); err != nil {
					t.Fatalf("after the leader failed: %v", err)
				}
			}
			t.Logf("another leads after %v, packets go again after %v", claimed.Round(time.Millisecond), time.Since(failed).Round(time.Millisecond))
			netns.StopAll(flow, back)

			// The old leader comes back: nothing moves, nothing is lost.
			flow, back = w.flow(other, cleo, 4), w.flow(cleo, other, 4)
			tt.end(leader)
			w.await("the old leader has withdrawn and is reached", 60*time.Second, func() bool {
				answered, err := cleo.pod.Ping(leader.pod4, 1, 100)
				return !leader.claims() && other.claims() && err == nil && answered == 1
			})
			for i, r := range netns.StopAll(flow, back) {
				if len(r.Lost) > 0 {
					t.Errorf("flow %d lost %d of %d when the old leader came back", i, len(r.Lost), r.Sent)
				}
			}
		})
	}
}

// A leader that is started again while it cannot hear of others has old facts, by which it leads
// still: the one that leads now tells it so itself.
func TestALeaderWithOldFactsHearsOfTheNewOne(t *testing.T) {
	w, ada, ben, cleo, _ := four(t)
	leader, other := w.leaderOf(ada, ben)
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	leader.agent.Kill()
	w.await(other.name+" leads", 60*time.Second, other.claims)
	begun := time.Now()
	args := append([]string{"agent", "--dir", old, "--node", leader.name, "--state-dir", leader.state}, leader.flags...)
	leader.agent = leader.Start(exec.Command(program, args...))
	for _, family := range []int{4, 6} {
		if err := leader.pod.AwaitPing(cleo.podAddr(family)); err != nil {
			t.Errorf("pod of the old leader to another location: %v", err)
		}
	}
	t.Logf("the old leader has its pods reach others again after %v", time.Since(begun).Round(time.Millisecond))
	if !other.claims() {
		t.Error("the new leader has withdrawn")
	}
}

// Both who leads and who does not reach the machines of other locations at their outer addresses,
// as they did before there was a mesh.
func TestOuterAddressesAreReachedByAll(t *testing.T) {
	w, _, _, _, _ := four(t)
	for _, from := range w.machines {
		for _, to := range w.machines {
			if from == to {
				continue
			}
			if err := from.AwaitPing(to.addr); err != nil {
				t.Errorf("%s to %s: %v", from.name, to.name, err)
			}
		}
	}
}

// A location that is cut off from the others, but not from what they publish, costs these nothing:
// no leader moves, no packet is lost, and when it is back everybody is reached.
//
//	ada, ben: berlin ─╳─ router ─┬─ oslo: cleo, dora
//	                             └─ rome: emil, fay
func TestALocationThatIsCutOffCostsTheOthersNothing(t *testing.T) {
	w := newWorld(t)
	for i, name := range []string{"ada", "ben", "cleo", "dora", "emil", "fay"} {
		w.machine(name, []string{"berlin", "oslo", "rome"}[i/2])
	}
	w.startAll(append([]string{"--topology", "location"}, ranges...)...)
	w.connected(4)
	cleo, dora, emil, fay := w.machines[2], w.machines[3], w.machines[4], w.machines[5]
	oslo, _ := w.leaderOf(cleo, dora)
	rome, _ := w.leaderOf(emil, fay)
	flows := []*netns.Flow{w.flow(dora, fay, 4), w.flow(fay, dora, 4), w.control(oslo, rome)}
	w.router.NFT("table inet cut { chain f { type filter hook forward priority 0; iifname br1 udp dport 51820 drop; oifname br1 udp dport 51820 drop; }; }")
	if err := flows[0].AwaitSent(t.Context(), 25*200); err != nil { // 25 s: accusations are told after 10
		t.Fatal(err)
	}
	if !oslo.claims() || !rome.claims() {
		t.Error("a leader of a location that has no fault was replaced")
	}
	w.router.NFT("delete table inet cut")
	w.connected(4)
	for i, r := range netns.StopAll(flows...) {
		if len(r.Lost) > 0 {
			t.Errorf("flow %d lost %d of %d", i, len(r.Lost), r.Sent)
		}
	}
}

func TestAWishMovesNoLeader(t *testing.T) {
	w, ada, ben, cleo, _ := four(t)
	leader, other := w.leaderOf(ada, ben)
	flow := w.flow(other, cleo, 4)
	other.spec["leader"] = "true"
	other.write()
	other.spec["extraPrefixes"] = "[192.168.99.0/24]" // seen to have arrived
	other.write()
	w.await("cleo has seen the wish", 20*time.Second, func() bool { return cleo.has("route show table 7107", "192.168.99.0/24") })
	if !leader.claims() || other.claims() {
		t.Error("the leader moved for a wish")
	}
	if r := flow.Stop(); len(r.Lost) > 0 {
		t.Errorf("lost %d of %d", len(r.Lost), r.Sent)
	}
}

// defaultRoute gives the machine its way to the router again.
func (m *machine) defaultRoute() {
	l := m.w.lans[m.spec["location"]]
	m.IP(l.routes()...)
}
