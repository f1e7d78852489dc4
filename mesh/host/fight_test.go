//go:build linux

package host

import (
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh"
)

func TestPauseDoublesUpToTheLongestAndIsForgotten(t *testing.T) {
	f := newFight("stillwire0")
	now := time.Now()
	change := []mesh.HostChange{{What: "route", Name: "10.2.1.0/24"}}
	var pauses []time.Duration
	for range 10 {
		pauses = append(pauses, f.pause(now))
		f.judge(now, wanted{}, change, true)
	}
	want := []time.Duration{0, 0, 0, 0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second}
	for i := range want {
		if pauses[i] != want[i] {
			t.Fatalf("pauses %v, want %v", pauses, want)
		}
	}
	if p := f.judge(now.Add(memory-1), wanted{}, nil, true); len(p) != 1 || p[0].Reason != mesh.Contended {
		t.Errorf("problems %v", p)
	}
	if p := f.judge(now.Add(memory), wanted{}, nil, true); p != nil || f.pause(now.Add(memory)) != 0 {
		t.Errorf("problems %v and a pause of %v after a quiet time", p, f.pause(now.Add(memory)))
	}
}

func TestNewGoalIsNoFight(t *testing.T) {
	f := newFight("stillwire0")
	now := time.Now()
	change := []mesh.HostChange{{What: "link", Name: "stillwire0"}}
	for i := range 10 {
		if p := f.judge(now, wanted{link: linkState{mtu: 1400 + i}}, change, true); p != nil {
			t.Fatalf("problems %v", p)
		}
	}
	for range 10 {
		f.judge(now, wanted{}, change, false) // nothing is reached, so nothing can be taken away
	}
	if p := f.judge(now, wanted{}, nil, true); p != nil {
		t.Errorf("problems %v", p)
	}
}
