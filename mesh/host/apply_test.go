//go:build linux

package host_test

import (
	"strings"
	"testing"
)

func TestMachineIsMadeFromNothing(t *testing.T) {
	r := newRig(t)
	t.Logf("changes:\n%s", strings.Join(text(r.apply(plan())), "\n"))
	t.Log(r.run("ip", "-4", "route", "show", "table", "7107"))
	t.Log(r.run("ip", "-6", "route", "show", "table", "7107"))
	t.Log(r.run("ip", "rule"))
	t.Log(r.run("ip", "-6", "rule"))
	t.Log(r.run("ip", "-d", "addr", "show", "dev", "stillwire0"))
	if again := r.apply(plan()); again != nil {
		t.Errorf("again: %v", strings.Join(text(again), "\n"))
	}
	t.Logf("changes:\n%s", strings.Join(text(r.uninstall()), "\n"))
	t.Log(r.run("nft", "list", "ruleset"))
	t.Log(r.run("ip", "-4", "route", "show", "table", "all"))
}
