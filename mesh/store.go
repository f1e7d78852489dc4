package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Store merges what sources say. It never loses a fact because a source fell silent: absence
// counts only in an update that is synced, and many absences at once only when they are
// confirmed. All methods may be called from any goroutine.
type Store struct {
	mu      sync.Mutex
	sources map[string]*holdings
	changed chan struct{}
}

// holdings are what is held of one source.
type holdings struct {
	nodes    map[string]Node
	peers    map[string]Peer
	settings *Settings
	problems []Problem
	heard    bool   // it has said something since the start
	synced   bool   // its absences have counted
	down     string // why it cannot be asked
	withheld int    // removals that wait to be confirmed
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{sources: make(map[string]*holdings), changed: make(chan struct{}, 1)}
}

// Changed receives when the facts may have changed since the last receive.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Recall takes in what was kept of a source when the agent ran last. It gives way to what the
// source says itself.
func (s *Store) Recall(u Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holdings(u.Source).take(Update{Nodes: u.Nodes, Peers: u.Peers, Settings: u.Settings})
}

func (s *Store) holdings(source string) *holdings {
	h := s.sources[source]
	if h == nil {
		h = &holdings{nodes: make(map[string]Node), peers: make(map[string]Peer)}
		s.sources[source] = h
	}
	return h
}

// Put takes in what a source knows now.
func (s *Store) Put(u Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holdings(u.Source)
	h.down = u.Down
	if u.Down == "" {
		h.heard = true
		h.take(u)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (h *holdings) take(u Update) {
	nodes, peers := named(u.Nodes, nodeName), named(u.Peers, peerName)
	gone := missing(h.nodes, nodes) + missing(h.peers, peers)
	held := len(h.nodes) + len(h.peers)
	h.withheld = 0
	if u.Synced && (u.Confirmed || gone <= max(3, held/4)) {
		h.nodes, h.peers, h.settings = nodes, peers, u.Settings
		h.synced = true
	} else {
		maps.Copy(h.nodes, nodes)
		maps.Copy(h.peers, peers)
		h.settings = cmp.Or(u.Settings, h.settings)
		if u.Synced {
			h.withheld = gone
		}
	}
	h.problems = slices.Clone(u.Problems)
}

func nodeName(n Node) string { return n.Name + "\x00" + n.UID }
func peerName(p Peer) string { return p.Name + "\x00" + p.UID }

func named[T any](list []T, name func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, x := range list {
		m[name(x)] = x
	}
	return m
}

func missing[T any](have, want map[string]T) (n int) {
	for name := range have {
		if _, ok := want[name]; !ok {
			n++
		}
	}
	return n
}

// Snapshot returns all facts, and the problems of the sources. Settings are those of the first
// source, by name, that has any.
func (s *Store) Snapshot() (Snapshot, []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var snap Snapshot
	var problems []Problem
	settled := false
	for _, name := range slices.Sorted(maps.Keys(s.sources)) {
		h := s.sources[name]
		snap.Nodes = slices.AppendSeq(snap.Nodes, maps.Values(h.nodes))
		snap.Peers = slices.AppendSeq(snap.Peers, maps.Values(h.peers))
		if h.settings != nil && !settled {
			snap.Settings, settled = *h.settings, true
		}
		problems = append(problems, h.problems...)
		problems = append(problems, h.ownProblems(name)...)
	}
	return snap, problems
}

func (h *holdings) ownProblems(name string) (list []Problem) {
	s := Subject{Kind: KindSource, Name: name}
	if h.down != "" {
		list = append(list, Problem{s, "", "", SourceDown, "cannot be asked (" + h.down + "), its last known facts are used", "see why, nothing is lost meanwhile"})
	}
	if h.withheld > 0 {
		detail := fmt.Sprintf("no longer has %d objects of %d, which are kept until a second look finds the same", h.withheld, len(h.nodes)+len(h.peers))
		list = append(list, Problem{s, "", "", RemovalHeld, detail, "restore them if they were not meant to go"})
	}
	return list
}

// Heard returns how many sources have said something since the start.
func (s *Store) Heard() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.sources {
		if h.heard {
			n++
		}
	}
	return n
}

// Synced reports whether every source that ever put anything has said all it knows.
func (s *Store) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.sources {
		if !h.synced {
			return false
		}
	}
	return len(s.sources) > 0
}

// Dump returns what is held of each source, by name, to be kept for a restart: see Recall.
func (s *Store) Dump() (list []Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.sources)) {
		h := s.sources[name]
		u := Update{Source: name, Settings: h.settings}
		for _, k := range slices.Sorted(maps.Keys(h.nodes)) {
			u.Nodes = append(u.Nodes, h.nodes[k])
		}
		for _, k := range slices.Sorted(maps.Keys(h.peers)) {
			u.Peers = append(u.Peers, h.peers[k])
		}
		list = append(list, u)
	}
	return list
}
