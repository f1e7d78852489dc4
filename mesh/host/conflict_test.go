//go:build linux

package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

func TestForeignTableOfTheNameIsNamedAndLeftAlone(t *testing.T) {
	for name, commands := range map[string][]string{
		"chain and rule": {"add table inet stillwire", "add chain inet stillwire input { type filter hook input priority 0 ; policy accept ; }", "add rule inet stillwire input tcp dport 22 accept comment \"ssh\""},
		"set alone":      {"add table inet stillwire", "add set inet stillwire admins { type ipv4_addr ; }", "add element inet stillwire admins { 192.0.2.7 }"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.node.NFT(commands...)
			before := r.run("nft", "list", "ruleset")
			_, problems, err := r.try(plan())
			if err != nil {
				t.Fatal(err)
			}
			named := false
			for _, p := range problems {
				named = named || p.Field == "firewall" && p.Reason == mesh.HostConflict && strings.Contains(p.Detail, "inet stillwire") && strings.Contains(p.Remedy, "nft")
			}
			if !named {
				t.Errorf("problems: %v", problems)
			}
			if out := r.run("ip", "route", "show", "table", "7107"); strings.Contains(out, "dev stillwire0") {
				t.Errorf("routes into the tunnel without a firewall:\n%s", out)
			}
			r.uninstall()
			if after := r.run("nft", "list", "ruleset"); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			r.node.NFT("delete table inet stillwire")
			r.apply(plan())
		})
	}
}

// A table that is ours stays so, whatever is done to it.
func TestDamagedTableIsTakenForOurs(t *testing.T) {
	for _, damage := range [][]string{
		{"flush table inet stillwire"},
		{"flush table inet stillwire", "delete chain inet stillwire in", "delete chain inet stillwire out", "delete chain inet stillwire cross", "delete chain inet stillwire sent"},
		{"delete table inet stillwire", "add table inet stillwire"},
	} {
		r := newRig(t)
		r.apply(plan())
		whole := r.ours()
		r.node.NFT(damage...)
		r.apply(plan())
		if got := r.ours(); got != whole {
			t.Errorf("after %v:\n%s\nwant:\n%s", damage, got, whole)
		}
	}
}

func TestOldValuesOfSysctlsAreSavedWhenThereIsRoom(t *testing.T) {
	r := newRig(t)
	small := filepath.Join(r.stateDir, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", small, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatalf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(small, 0) })
	filler := filepath.Join(small, "filler")
	if err := os.WriteFile(filler, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	r.options.StateDir = small
	r.host = r.restarted()
	switches := func() (lines []string) { // other lines tell of addresses that are still tentative
		for line := range strings.Lines(dump(t, r.node)) {
			if strings.Contains(line, "forward") || strings.Contains(line, "accept_redirects") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	before := switches()
	for range 2 {
		_, problems, err := r.try(plan())
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Detail, "no space left") || !strings.Contains(problems[0].Remedy, small) {
			t.Errorf("problems %v, error %v", problems, err)
		}
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if got := strings.TrimSpace(readFile(t, r.node, "/proc/sys/net/"+name)); got != "1" {
				t.Errorf("%s is %s", name, got)
			}
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	wantChanges(t, r.apply(plan()))
	r.uninstall()
	if diff := cmp.Diff(before, switches()); diff != "" {
		t.Errorf("uninstalled (-before +after):\n%s", diff)
	}
}

func TestErrorOfTheTUNSaysWhatToDo(t *testing.T) {
	r := newRig(t)
	open := func() error { _, err := r.host.OpenTUN(); return err }
	r.node.IP("link add stillwire0 type bridge")
	err := r.node.Do(open)
	if err == nil || !strings.Contains(err.Error(), `of kind "bridge" and not a TUN: remove it, or choose another interface`) {
		t.Errorf("error: %v", err)
	}
	r.node.IP("link del stillwire0")
	err = r.node.Do(func() error { return withoutNetAdmin(open) })
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "NET_ADMIN") {
		t.Errorf("error: %v", err)
	}
	var busy *host.BusyError
	r.open()
	if err := r.node.Do(func() error { _, err := r.restarted().OpenTUN(); return err }); !errors.As(err, &busy) {
		t.Errorf("error: %v", err)
	}
}
