package mesh

import (
	"context"
	"net/netip"

	"github.com/stillwire/stillwire/device"
)

// Device is the WireGuard device that an agent drives: *device.Device on a kernel TUN, or a
// netstack node in the process.
type Device interface {
	// Apply makes the device equal to the config without hurting the sessions of peers that
	// stay, and returns what it changed.
	Apply(ctx context.Context, want device.Config) ([]device.Change, error)
	// Plan returns what Apply would change, and does nothing.
	Plan(want device.Config) ([]device.Change, error)
	State() (device.State, error)
}

// Host is the machine around the device. Apply, Plan and Facts are called from one goroutine.
type Host interface {
	// Apply makes the machine equal to the plan and returns what it changed, nil when it was
	// equal. It adds before it removes, goes on after what cannot be done, and returns that as
	// problems that last as long as the cause. An error is what may work at the next try.
	Apply(ctx context.Context, want HostPlan) ([]HostChange, []Problem, error)
	// Plan returns what Apply would change, and does nothing.
	Plan(want HostPlan) ([]HostChange, error)
	// Facts reads what the machine is like.
	Facts() (HostFacts, error)
	// Run calls again whenever Facts may have changed, or what Apply made is no longer there,
	// until ctx is done. again never blocks.
	Run(ctx context.Context, again func()) error
}

// HostChange is one thing that was changed on the machine.
type HostChange struct {
	What  string // what kind of thing: "link", "address", "route", "rule", "table", "set", "sysctl"
	Name  string // which: "10.2.0.0/24", "set mesh4"
	Old   string // "": it was not there
	New   string // "": it is gone
	Cause string // the member or setting that asks for it; "": this node itself
}

// HostFacts is what a machine is like, as far as the mesh needs it.
type HostFacts struct {
	// InternalIPs are the addresses by which neighbours may reach the machine, best first:
	// the one the default route takes before others, private ones before global ones.
	InternalIPs []netip.Addr
	// Global are addresses of the machine that can be reached from everywhere, best first.
	Global []netip.Addr
	// Links are the prefixes of the machine's own links, but for those of Stillwire.
	Links []netip.Prefix
}

// Publisher makes known to the others what a node says of itself.
type Publisher interface {
	// Publish replaces all that the node said before. It is called when the status differs from
	// what the source shows of this node, not more often than once a second, and again when it
	// failed.
	Publish(ctx context.Context, node string, status NodeStatus) error
}

// Source is where facts come from.
type Source interface {
	// Run hands over all facts of the source, at first and after each change, until ctx is
	// done. put never blocks.
	Run(ctx context.Context, put func(Update)) error
}

// Update is all that one source knows at one moment.
type Update struct {
	Source   string // the source's name: "files", "kubernetes"
	Nodes    []Node
	Peers    []Peer
	Settings *Settings // nil: the source has none
	Problems []Problem // what in the source could not be read
	// Synced says that what is absent does not exist. Otherwise absence means nothing.
	Synced bool
	// Confirmed says that absence was asked for one by one, or seen twice: also many removals
	// at once are believed.
	Confirmed bool
	// Down is why the source cannot be asked; its facts are then ignored and those before last.
	// "": it can.
	Down string
}
