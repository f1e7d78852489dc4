package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What others take away is put back, and packets pass again.
func TestWhatIsTakenAwayIsPutBack(t *testing.T) {
	w, ada, ben, _ := three(t)
	w.startAll(ranges...)
	w.connected(4)
	for _, take := range [][]string{
		{"ip", "route", "flush", "table", "7107"},
		{"ip", "route", "del", "10.42.2.0/24", "table", "7107", "metric", "0"},
		{"ip", "rule", "del", "priority", "7107"},
		{"ip", "addr", "flush", "dev", "stillwire0"},
		{"ip", "link", "set", "stillwire0", "down"},
		{"ip", "link", "del", "stillwire0"},
		{"nft", "delete", "table", "inet", "stillwire"},
		{"nft", "flush", "set", "inet", "stillwire", "tunnelled4"},
		{"nft", "flush", "chain", "inet", "stillwire", "out"},
	} {
		t.Run(strings.Join(take, " "), func(t *testing.T) {
			want := ada.dump()
			if _, err := run(ada.Namespace, take...); err != nil {
				t.Fatal(err)
			}
			var got string
			w.await("the machine is as before", 20*time.Second, func() bool {
				got = ada.dump()
				return got == want
			})
			if err := ada.pod.AwaitPing(ben.pod4); err != nil {
				t.Error(err)
			}
		})
	}
}

// dump is what of the machine an agent may change.
func (m *machine) dump() string {
	var b strings.Builder
	for _, command := range []string{
		"ip -o link", "ip -o addr", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all",
		"nft -s list ruleset",
	} {
		out, err := run(m.Namespace, strings.Fields(command)...)
		if err != nil {
			m.w.t.Fatal(err)
		}
		b.WriteString("# " + command + "\n" + steady(out))
	}
	for _, pattern := range []string{"net/ipv[46]/conf/*/*forwarding", "net/ipv4/conf/*/rp_filter", "net/ipv4/conf/*/src_valid_mark", "net/ipv4/ip_forward"} {
		b.WriteString(m.sysctls(pattern))
	}
	return b.String()
}

// sysctls lists those that match a pattern below /proc/sys.
func (m *machine) sysctls(pattern string) string {
	var b strings.Builder
	err := m.Do(func() error {
		paths, err := filepath.Glob(filepath.Join("/proc/sys", pattern))
		for _, p := range paths {
			if strings.Contains(p, "stillwire0") {
				continue
			}
			value, _ := os.ReadFile(p)
			b.WriteString(p + " = " + string(value))
		}
		return err
	})
	if err != nil {
		m.w.t.Fatal(err)
	}
	return b.String()
}

// steady leaves out what changes by itself: indices, counters, timers.
func steady(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasSuffix(fields[0], ":") && strings.Trim(fields[0], "0123456789:") == "" {
			fields = fields[1:] // the index of a link
		}
		line = strings.Join(fields, " ")
		if i := strings.Index(line, " expires "); i >= 0 {
			line = line[:i]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// After uninstall, also long after the agent was killed, the machine is as it was before.
func TestUninstallLeavesTheMachineAsItWas(t *testing.T) {
	w, ada, ben, _ := three(t)
	ada.NFT("table inet theirs { chain f { type filter hook forward priority 0; policy accept; }; }")
	ada.Sysctl("net/ipv4/ip_forward", "0")
	before := ada.dump()
	w.startAll(ranges...)
	w.connected(4, 6)
	ada.agent.Kill()
	out, err := run(ada.Namespace, program, "uninstall", "--state-dir", ada.state)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(ada.dump(), "\n")); diff != "" {
		t.Errorf("the machine differs (uninstall said %s):\n%s", out, diff)
	}
	if again, err := run(ada.Namespace, program, "uninstall", "--state-dir", ada.state); err != nil || again != "" {
		t.Errorf("the second time it says %q, %v, want nothing", again, err)
	}
	_ = ben
}
