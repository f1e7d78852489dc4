package agents

import (
	"encoding/json"
	"net/netip"

	"github.com/stillwire/stillwire/mesh"
)

// report is what the machine's agent knows, zero when it does not answer.
func (m *machine) report() (r mesh.Report) {
	out, err := run(m.Namespace, program, "status", "--state-dir", m.state)
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		return mesh.Report{}
	}
	return r
}

// hears reports whether the path to another machine is up.
func (m *machine) hears(other string) bool {
	for _, member := range m.report().Members {
		if member.Name == other {
			return member.Verdict == mesh.Up
		}
	}
	return false
}

// claimed is the machine's IPv4 mesh address.
func (m *machine) claimed() netip.Addr {
	for _, a := range m.report().MeshAddresses {
		if a.Is4() {
			return a
		}
	}
	return netip.Addr{}
}
