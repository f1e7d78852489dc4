package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
)

// scene is an agent between a source that the test plays, and a device and a host that note in
// one list what they were told.
type scene struct {
	mu        sync.Mutex
	told      []string
	config    device.Config
	plan      HostPlan
	hostErr   error
	published []NodeStatus
	saved     []Update
	facts     HostFacts
	put       func(Update)
	again     func()
	log       bytes.Buffer
	agent     *Agent
}

func (s *scene) note(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

// take returns what was noted since the last take.
func (s *scene) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

type sceneDevice struct{ *scene }

func (d sceneDevice) Apply(_ context.Context, want device.Config) (changes []device.Change, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := make(map[device.PublicKey]bool)
	for _, p := range d.config.Peers {
		have[p.PublicKey] = true
	}
	for _, p := range want.Peers {
		if !have[p.PublicKey] {
			d.note("device +%s", p.Name)
			changes = append(changes, device.Change{Peer: p.PublicKey, Field: "peer", New: p.Name})
		}
		delete(have, p.PublicKey)
	}
	for _, p := range d.config.Peers {
		if have[p.PublicKey] {
			d.note("device -%s", p.Name)
			changes = append(changes, device.Change{Peer: p.PublicKey, Field: "peer", Old: p.Name})
		}
	}
	d.config = want
	return changes, nil
}

func (d sceneDevice) Plan(device.Config) ([]device.Change, error) { return nil, nil }
func (d sceneDevice) State() (device.State, error)                { return device.State{}, nil }

type sceneHost struct{ *scene }

func (h sceneHost) Apply(_ context.Context, want HostPlan) (changes []HostChange, _ []Problem, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hostErr != nil {
		h.note("host fails")
		return nil, nil, h.hostErr
	}
	if h.plan.ListenPort == 0 || !slices.Equal(h.plan.Routes, want.Routes) {
		h.note("host %d routes", len(want.Routes))
		changes = append(changes, HostChange{What: "route", Name: "all", New: fmt.Sprint(len(want.Routes))})
	}
	h.plan = want
	return changes, nil, nil
}

func (h sceneHost) Plan(HostPlan) ([]HostChange, error) { return nil, nil }
func (h sceneHost) Facts() (HostFacts, error)           { return h.facts, nil }
func (h sceneHost) Run(ctx context.Context, again func()) error {
	h.again = again
	<-ctx.Done()
	return nil
}

type sceneSource struct{ *scene }

func (s sceneSource) Run(ctx context.Context, put func(Update)) error {
	s.put = put
	<-ctx.Done()
	return nil
}

func (s *scene) Publish(_ context.Context, node string, status NodeStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = append(s.published, status)
	return nil
}

func (s *scene) Load() ([]Update, error) { return s.saved, nil }
func (s *scene) Save(u []Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = u
	return nil
}

// play runs an agent named a until test returns.
func play(t *testing.T, s *scene, test func()) {
	synctest.Test(t, func(t *testing.T) {
		key, err := device.NewPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		s.facts = HostFacts{InternalIPs: []netip.Addr{addr("172.16.0.1")}}
		s.agent, err = NewAgent(AgentOptions{
			Node: "a", Key: key, Device: sceneDevice{s}, Host: sceneHost{s}, Sources: []Source{sceneSource{s}},
			Publisher: s, Memory: s, ResyncPeriod: 10 * time.Minute, Log: zerolog.New(&s.log),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() {
			if err := s.agent.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		test()
		cancel()
		work.Wait()
	})
}

// others are n nodes beside a, whose status is what the agent published last.
func (s *scene) others(n int) Update {
	u := Update{Source: "x", Synced: true, Confirmed: true}
	for i := range n {
		u.Nodes = append(u.Nodes, node(i+1, ""))
	}
	self := Node{Identity: Identity{Name: "a"}}
	if len(s.published) > 0 {
		self.Status = s.published[len(s.published)-1]
	}
	u.Nodes = append(u.Nodes, self)
	return u
}

func TestNothingIsTouchedBeforeTheSourcesHaveSpoken(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		u := s.others(2)
		u.Down = "connection refused"
		s.put(u)
		after(time.Hour)
		if told := s.take(); len(told) > 0 {
			t.Errorf("%v", told)
		}
		u.Down, u.Synced = "", false // a part of it cannot be read
		s.put(u)
		if diff := cmp.Diff([]string{"device +b", "device +c", "host 6 routes"}, s.take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWithItsMemoryANodeWaitsForNoSource(t *testing.T) {
	s := &scene{saved: []Update{{Source: "x", Nodes: []Node{node(1, "")}}}}
	play(t, s, func() {
		if diff := cmp.Diff([]string{"device +b", "host 3 routes"}, s.take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFactsAreKeptSoonAndAtTheEnd(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		s.put(s.others(2))
		after(firstSave + time.Second)
		if len(s.saved) != 1 || len(s.saved[0].Nodes) != 3 {
			t.Errorf("kept after %v: %+v", firstSave, s.saved)
		}
		s.put(s.others(5))
		after(time.Second)
		if len(s.saved[0].Nodes) != 3 {
			t.Error("kept again at once")
		}
	})
	if len(s.saved[0].Nodes) != 6 {
		t.Errorf("%d nodes were kept at the end, want 6", len(s.saved[0].Nodes))
	}
}

func TestTheDeviceIsAddedToBeforeTheHostAndTakenFromAfter(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		s.put(s.others(2))
		s.take()
		u := s.others(0)
		u.Nodes = append(u.Nodes, node(1, ""), node(7, ""))
		s.put(u)
		if diff := cmp.Diff([]string{"device +h", "host 6 routes", "device -c"}, s.take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAnUnchangedWorldCostsNothing(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		s.put(s.others(3))
		after(2 * time.Second)
		s.put(s.others(3)) // with what a published
		after(time.Minute)
		s.take()
		lines, published := s.log.Len(), len(s.published)
		after(3 * time.Hour)
		for range 100 {
			s.again()
			s.put(s.others(3))
			after(time.Second)
		}
		if told := s.take(); len(told) > 0 {
			t.Errorf("it did %v", told)
		}
		if s.log.Len() != lines {
			t.Errorf("it wrote %s", s.log.String()[lines:])
		}
		if len(s.published) != published {
			t.Errorf("it published %d times", len(s.published)-published)
		}
	})
}

func TestWhatANodeSaysIsPublishedOnceASecondAtMost(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		s.put(s.others(1))
		synctest.Wait()
		for i := range 50 {
			s.facts.InternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 9, byte(i)})}
			s.again()
			after(100 * time.Millisecond)
		}
		if n := len(s.published); n < 4 || n > 7 {
			t.Errorf("published %d times in 5 s", n)
		}
		after(2 * time.Second)
		if got := s.published[len(s.published)-1].InternalIPs[0]; got != addr("172.16.9.49") {
			t.Errorf("the last that was published is %s", got)
		}
	})
}

func TestAHostThatFailsKeepsNothingElseFromBeingDone(t *testing.T) {
	s := &scene{hostErr: errors.New("no buffer space")}
	play(t, s, func() {
		s.put(s.others(2))
		if diff := cmp.Diff([]string{"device +b", "device +c", "host fails"}, s.take()); diff != "" {
			t.Error(diff)
		}
		after(10 * time.Minute)
		if n := len(s.take()); n < 15 || n > 30 {
			t.Errorf("tried again %d times in 10 minutes, want each 30 s in the end", n)
		}
		s.mu.Lock()
		s.hostErr = nil
		s.mu.Unlock()
		after(31 * time.Second)
		if diff := cmp.Diff([]string{"host 6 routes"}, s.take()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAProblemIsWrittenWhenItBeginsAndWhenItEnds(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		good := s.others(2)
		bad := s.others(2)
		bad.Nodes[0].PodCIDRs = []netip.Prefix{prefix("224.0.0.0/8")}
		for range 5 {
			s.put(bad)
			after(time.Minute)
		}
		s.put(good)
		after(time.Minute)
		text := s.log.String()
		if begun, ended := strings.Count(text, "problem: holds addresses of groups"), strings.Count(text, "problem ended"); begun != 1 || ended != 1 {
			t.Errorf("begun %d times, ended %d times, want once each:\n%s", begun, ended, text)
		}
	})
}

func TestANodeThatIsNoMemberKeepsWhatItHas(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		s.put(s.others(2))
		s.take()
		u := s.others(2)
		u.Nodes[0].Status.PublicKey = s.agent.o.Key.Public() // and is older
		u.Nodes[0].Created = time.Time{}
		for i := range u.Nodes {
			if u.Nodes[i].Name == "a" {
				u.Nodes[i].Created = time.Now()
			}
		}
		s.put(u)
		if told := s.take(); len(told) > 0 {
			t.Errorf("it did %v", told)
		}
		if problems := s.agent.Status().Problems; !slices.ContainsFunc(problems, func(p Problem) bool { return p.Reason == NoMember }) {
			t.Errorf("nobody is told: %v", problems)
		}
	})
}

func TestAnotherAgentOfTheSameNameIsNamedAndNotFought(t *testing.T) {
	s := &scene{}
	play(t, s, func() {
		s.put(s.others(1))
		after(2 * time.Second)
		for range 300 { // the other writes its own each second
			u := s.others(1)
			u.Nodes[len(u.Nodes)-1].Status.PublicKey = key("rival")
			s.put(u)
			after(500 * time.Millisecond)
			s.put(s.others(1))
			after(500 * time.Millisecond)
		}
		if n := len(s.published); n > 30 {
			t.Errorf("published %d times in five minutes, want more and more seldom", n)
		}
		if got := strings.Count(s.log.String(), "is published by another agent too"); got != 1 {
			t.Errorf("said %d times, want once", got)
		}
		s.put(s.others(1))
		after(2 * rivalLasts)
		s.again()
		synctest.Wait()
		if got := strings.Count(s.log.String(), "problem ended"); got != 1 {
			t.Errorf("its end was said %d times, want once", got)
		}
	})
}

func TestARestartKeepsTheMeshAddress(t *testing.T) {
	s := &scene{}
	var before []netip.Addr
	play(t, s, func() {
		s.put(s.others(1))
		after(time.Second)
		before = s.published[0].MeshAddresses
		// A node that comes later takes nothing from it, though its name goes before.
		u := s.others(1)
		intruder := node(9, "")
		intruder.Name, intruder.Status.MeshAddresses = "A", before
		u.Nodes = append(u.Nodes, intruder)
		s.put(u)
		after(time.Second)
		if got := s.agent.Status().Plan.Publish.MeshAddresses; !slices.Equal(got, before) {
			t.Errorf("it had %v and has %v", before, got)
		}
	})
}

func TestKeepUntilRouted(t *testing.T) {
	peer := func(name string, prefixes ...string) device.PeerConfig {
		p := device.PeerConfig{PublicKey: key(name), Name: name}
		for _, x := range prefixes {
			p.AllowedIPs = append(p.AllowedIPs, prefix(x))
		}
		return p
	}
	config := func(peers ...device.PeerConfig) device.Config { return device.Config{Peers: peers} }
	for _, tt := range []struct {
		name               string
		before, want, both device.Config
	}{
		{"a peer that goes stays", config(peer("a", "10.1.0.0/24")), config(), config(peer("a", "10.1.0.0/24"))},
		{"a prefix that goes stays", config(peer("a", "10.1.0.0/24")), config(peer("a")), config(peer("a", "10.1.0.0/24"))},
		{"a prefix that moves is the new owner's", config(peer("a", "10.1.0.0/24")), config(peer("b", "10.1.0.0/24")), config(peer("b", "10.1.0.0/24"), peer("a"))},
		{"nothing changes", config(peer("a", "10.1.0.0/24")), config(peer("a", "10.1.0.0/24")), config(peer("a", "10.1.0.0/24"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Plan{Device: keepUntilRouted(tt.before, tt.want)}.String()
			if diff := cmp.Diff(Plan{Device: tt.both}.String(), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
