package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/test/netns"
)

// Of two that claim one thing the older keeps it, loses nothing, and every node names the other.
func TestOfTwoThatClaimOneThingTheOlderLosesNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		claim  func(older, younger *machine)
		reason string
	}{
		{"one pod CIDR", func(older, younger *machine) { younger.spec["podCIDRs"] = older.spec["podCIDRs"] }, "OverlappingPrefix"},
		{"half of a pod CIDR", func(_, younger *machine) { younger.spec["podCIDRs"] = "[10.42.1.0/25]" }, "OverlappingPrefix"},
		{"one internal IP", func(older, younger *machine) { younger.spec["internalIPs"] = "[" + older.addr.String() + "]" }, "DuplicateInternalIP"},
		{"one key", func(older, younger *machine) { younger.copyKey(older) }, "DuplicateKey"},
		{"the pods as an extra prefix", func(_, younger *machine) { younger.spec["extraPrefixes"] = "[10.42.1.0/24]" }, "OverlappingPrefix"},
		{"all around the endpoint as an extra prefix", func(_, younger *machine) { younger.spec["extraPrefixes"] = "[203.0.113.16/28]" }, "OverlappingPrefix"},
		{"the endpoint as an extra prefix", func(older, younger *machine) { younger.spec["extraPrefixes"] = "[" + older.addr.String() + "/32]" }, "OverlappingPrefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, ada, ben, cleo := three(t)
			ada.created, cleo.created = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
			ada.start(ranges...)
			ben.start(ranges...)
			w.await("ada and ben guard the mesh", 20*time.Second, func() bool { return ada.guarded() && ben.guarded() })
			if err := ada.pod.AwaitPing(ben.pod4); err != nil {
				t.Fatal(err)
			}
			flows := []*netns.Flow{w.flow(ada, ben, 4), w.flow(ben, ada, 4), w.control(ada, ben)}
			tt.claim(ada, cleo)
			cleo.start(ranges...)
			for _, m := range []*machine{ada, ben, cleo} {
				w.await(m.name+" names the conflict", 20*time.Second, func() bool {
					return strings.Contains(m.agent.Output(), `"subject":"node cleo (cleo.yaml:1)","reason":"`+tt.reason+`"`)
				})
			}
			if err := flows[0].AwaitSent(t.Context(), 200); err != nil {
				t.Fatal(err)
			}
			for i, r := range netns.StopAll(flows...) {
				if len(r.Lost) > 0 {
					t.Errorf("flow %d lost %d of %d", i, len(r.Lost), r.Sent)
				}
			}
			ended := strings.Count(ada.agent.Output(), "problem ended")
			cleo.agent.Kill()
			w.remove(cleo)
			w.await("ada says that the conflict has ended", 20*time.Second, func() bool {
				return strings.Count(ada.agent.Output(), "problem ended") > ended
			})
		})
	}
}

// copyKey gives the machine the key of another, as a copied disk does.
func (m *machine) copyKey(from *machine) {
	m.w.t.Helper()
	key, err := os.ReadFile(filepath.Join(from.state, "key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(m.state, "key"), key, 0o600)
	}
	if err != nil {
		m.w.t.Fatal(err)
	}
}
