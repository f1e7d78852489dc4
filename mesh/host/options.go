package host

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/mesh"
)

// What is owned when Options do not say otherwise. The mark has no bit that kube-proxy,
// Calico, Cilium or Tailscale look at, and the protocol is in no rt_protos of iproute2's.
const (
	DefaultInterface = "stillwire0"
	DefaultTable     = 7107
	DefaultProtocol  = 107
	DefaultPriority  = 7106
	DefaultFwMark    = 0x3053
	DefaultSysctlDir = "/proc/sys/net"
	DefaultStateDir  = "/var/lib/stillwire"
)

// Options say what a Host may use of the machine. The zero value works. All agents that ever
// ran on one machine, and its Uninstall, need the same.
type Options struct {
	Interface string // name of the TUN; "": stillwire0
	Table     int    // routing table, the next two are used too; 0: 7107
	Protocol  int    // route protocol, 1 to 255; 0: 107
	Priority  int    // of the first of four rules in a row; 0: 7106
	FwMark    uint32 // of the outer packets, as in device.Config; the next one is used too; 0: 0x3053
	MTU       int    // of the interface, bytes, before the plan's; 0: the plan's, or found from the path
	// Masquerade gives packets of this node's pods to the world the address of the node.
	Masquerade bool
	// ForwardRules puts a rule of ours into each foreign chain that would drop what is
	// forwarded from or to the tunnel. Without it the chain is named in a problem.
	ForwardRules bool
	// NoRepair stops watching what is ours: it is put right at the next Apply, whenever that is.
	NoRepair bool
	// NoOffload has the kernel hand over one packet at a time, with its checksum.
	NoOffload bool
	// TrackPort has connection tracking see the outer packets, for firewalls that let in answers
	// alone and do not say so by the policy of their chain.
	TrackPort bool
	// Encapsulation is how routes ViaEncapsulated travel; "": VXLAN.
	Encapsulation mesh.Encapsulation
	// CNIFile is where a configuration for the pods of this node is written (bridge, host-local,
	// portmap), with the MTU that fits the tunnel: for a node that has no other network of pods.
	// "": none is.
	CNIFile string
	// SysctlDir is where sysctls of the network are read and written: a container's runtime mounts
	// /proc/sys read-only, and nothing over it, so the machine's has another path in there.
	// "": /proc/sys/net.
	SysctlDir string
	StateDir  string // where old values of sysctls are kept; "": /var/lib/stillwire
	Log       zerolog.Logger
}

// nameLimit is what the kernel keeps of a link's name.
const nameLimit = 15

func (o Options) withDefaults() (Options, error) {
	o.Interface = cmp.Or(o.Interface, DefaultInterface)
	o.Table = cmp.Or(o.Table, DefaultTable)
	o.Protocol = cmp.Or(o.Protocol, DefaultProtocol)
	o.Priority = cmp.Or(o.Priority, DefaultPriority)
	o.FwMark = cmp.Or(o.FwMark, DefaultFwMark)
	o.Encapsulation = cmp.Or(o.Encapsulation, mesh.VXLAN)
	o.SysctlDir = filepath.Clean(cmp.Or(o.SysctlDir, DefaultSysctlDir))
	o.StateDir = cmp.Or(o.StateDir, DefaultStateDir)
	switch {
	case len(o.Interface) > nameLimit:
		return o, fmt.Errorf("interface %q: longer than %d characters", o.Interface, nameLimit)
	case o.Protocol < 5 || o.Protocol > 255:
		return o, fmt.Errorf("route protocol %d: not within 5 and 255", o.Protocol)
	case o.Table < 1 || o.Table >= 251 && o.Table <= 255:
		return o, fmt.Errorf("routing table %d: it or one of the next two is the system's (253 to 255), choose another", o.Table)
	case o.Priority < 1 || o.Priority > 32760:
		return o, fmt.Errorf("rule priority %d: not within 1 and 32760, before the main table", o.Priority)
	case o.FwMark == math.MaxUint32:
		return o, fmt.Errorf("mark %#x: the next one is used too, choose a lower one", o.FwMark)
	}
	return o, nil
}

// table is the number of one of our tables.
func (o Options) table(t table) int { return o.Table + int(t) }

// crossMark is on what is forwarded from here to another node's internal IP.
func (o Options) crossMark() uint32 { return o.FwMark + 1 }

// ErrUnsupported is returned where there is no Linux.
var ErrUnsupported = errors.New("a host needs Linux: run in netstack mode here")

// BusyError tells that another process serves the interface.
type BusyError struct {
	Interface string
	PID       int    // 0: not permitted to see
	Program   string // "": as PID
}

func (e *BusyError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d (%s)", e.PID, e.Program)
	}
	return fmt.Sprintf("interface %s is served by %s: stop that, or choose another interface", e.Interface, holder)
}
