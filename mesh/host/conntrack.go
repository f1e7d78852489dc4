//go:build linux

package host

import (
	"errors"
	"fmt"
	"sort"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// stale are the connections of own pods whose source is, or is not, masqueraded as it would be
// for a new one. Only those to destinations that have just come into the mesh, or left it, are
// looked at, and none that somebody else has translated on their way there: their destination
// is another one.
type stale struct {
	family       int
	pods, inside []interval // as they are now
	moved        []interval // came in or left
}

// conntrackSteps forgets stale connections after the sets have changed. The next packet of each
// begins it anew.
func (o Options) conntrackSteps(have tableState, want ruleset) (steps []step) {
	if !o.Masquerade {
		return nil // whoever does it has connections of its own
	}
	sets := want.byName()
	for _, v := range []version{v4, v6} {
		inside := sets["inside"+v.suffix]
		in, left := diffElements(have.sets["inside"+v.suffix], inside)
		s := stale{family: v.family(), pods: sets["pods"+v.suffix], inside: inside, moved: sorted(append(in, left...))}
		if len(s.moved) > 0 && len(s.pods) > 0 {
			steps = append(steps, step{field: "conntrack", do: func(*kernel) error { return s.forget() }})
		}
	}
	return steps
}

func (r ruleset) byName() map[string][]interval {
	sets := make(map[string][]interval)
	for _, s := range r.sets {
		sets[s.name] = s.elements
	}
	return sets
}

func (v version) family() int {
	if v.n == 4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (s stale) forget() error {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack netlink: %w", err)
	}
	defer h.Close()
	_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(s.family), s)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("forget connections: %w", err)
	}
	return nil
}

// MatchConntrackFlow reports whether a connection is stale.
func (s stale) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	src, dst := addrOf(flow.Forward.SrcIP), addrOf(flow.Forward.DstIP)
	if !contains(s.pods, src.AsSlice()) || !contains(s.moved, dst.AsSlice()) {
		return false
	}
	masqueraded := addrOf(flow.Reverse.DstIP) != src
	return masqueraded == contains(s.inside, dst.AsSlice())
}

// contains looks up an address in sorted intervals that do not overlap.
func contains(sorted []interval, addr []byte) bool {
	a := string(addr)
	i := sort.Search(len(sorted), func(i int) bool { return sorted[i].from > a })
	return i > 0 && (sorted[i-1].to == "" || a < sorted[i-1].to)
}

func sorted(intervals []interval) []interval {
	sort.Slice(intervals, func(i, j int) bool { return intervals[i].from < intervals[j].from })
	return intervals
}
