//go:build linux

package host_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

func TestTUNOutlivesItsProcess(t *testing.T) {
	r := newRig(t)
	e := r.open()
	r.apply(plan())
	whole := r.ours()
	e.dev.Close()
	all := listenAll(t, r.node)
	r.host = r.restarted()
	wantChanges(t, r.apply(plan()))
	if n := all.drain(); n > 1 { // the carrier that the closed TUN has lost
		t.Errorf("the kernel tells of %d changes", n)
	}
	e = r.open()
	if err := e.expectWhile(func() { send(t, r.pod, addr("10.2.1.5"), 1) }, seen{addr("10.2.0.2"), addr("10.2.1.5")}); err != nil {
		t.Error(err)
	}
	without := func(s string) string {
		return strings.NewReplacer("NO-CARRIER,", "", ",LOWER_UP", "", " linkdown", "").Replace(s)
	}
	if a, b := without(whole), without(r.ours()); strings.Split(a, "inet stillwire")[1] != strings.Split(b, "inet stillwire")[1] {
		t.Errorf("before:\n%s\nafter:\n%s", a, b)
	}
}

func TestTUNThatIsServedNamesItsHolder(t *testing.T) {
	r := newRig(t)
	r.open()
	r.apply(plan())
	other := r.restarted()
	err := r.node.Do(func() error { _, err := other.OpenTUN(); return err })
	var busy *host.BusyError
	if !errors.As(err, &busy) || busy.Interface != "stillwire0" || busy.PID != os.Getpid() || busy.Program == "" {
		t.Errorf("error: %v", err)
	}
	err = r.node.Do(func() error { _, err := host.Uninstall(t.Context(), r.options); return err })
	if !errors.As(err, &busy) {
		t.Errorf("uninstalled while served: %v", err)
	}
	wantChanges(t, r.apply(plan()))
}

func TestForeignLinkOfTheNameIsNamedAndLeftAlone(t *testing.T) {
	r := newRig(t)
	r.node.IP("link add stillwire0 type bridge")
	var conflict mesh.Problem
	_, problems, err := r.try(plan())
	for _, p := range problems {
		if p.Field == "interface" {
			conflict = p
		}
	}
	if err != nil || conflict.Reason != mesh.HostConflict || !strings.Contains(conflict.Detail, `"bridge"`) {
		t.Errorf("problems %v, error %v", problems, err)
	}
	err = r.node.Do(func() error { _, err := r.host.OpenTUN(); return err })
	if err == nil || !strings.Contains(err.Error(), "not a TUN") {
		t.Errorf("opened: %v", err)
	}
	r.uninstall()
	r.run("ip", "link", "show", "dev", "stillwire0")
}

func TestRemovedTUNIsServedAgain(t *testing.T) {
	for _, offload := range []bool{true, false} {
		r := newRig(t, func(o *host.Options) { o.NoOffload = !offload })
		e := r.open()
		r.apply(plan())
		k := r.keep(plan())
		want := seen{addr("10.2.0.2"), addr("10.2.1.5")}
		ping := func() { send(t, r.pod, addr("10.2.1.5"), 1) }
		if err := e.expectWhile(ping, want); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r.node.IP("link del stillwire0")
			for len(e.seen) > 0 {
				<-e.seen
			}
			begun := time.Now()
			if err := e.expectWhile(ping, want); err != nil {
				t.Fatal(err)
			}
			t.Logf("offload %t: served again after %v", offload, time.Since(begun).Round(time.Millisecond))
			k.quiet()
		}
		e.echo(addr("10.2.1.7"), addr("10.4.0.1"))
		if err := e.expect(seen{addr("10.4.0.1"), addr("10.2.1.7")}); err != nil {
			t.Error(err)
		}
	}
}
