//go:build linux

package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// setting is a value below Options.SysctlDir that a plan needs.
type setting struct {
	name string // "ipv4/ip_forward"
	want string
	// own says that it is one of our interface, and goes with it.
	own bool
	// enough are other values that do as well.
	enough []string
}

// wantSettings are those that the plan cannot do without.
func (o Options) wantSettings(plan mesh.HostPlan, around *surroundings) (s []setting) {
	// With a strict filter on all links the loose one of ours is what counts.
	s = append(s, setting{name: "ipv4/conf/" + o.Interface + "/rp_filter", want: "2", own: true, enough: []string{"0"}})
	if slices.ContainsFunc(plan.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		s = append(s, setting{name: "ipv6/conf/" + o.Interface + "/disable_ipv6", want: "0", own: true})
	}
	if forwards(plan, unix.AF_INET) {
		s = append(s, setting{name: "ipv4/ip_forward", want: "1"})
	}
	if forwards(plan, unix.AF_INET6) && around.ipv6 {
		// A machine that forwards ignores router advertisements, and loses its default route,
		// unless told otherwise (Documentation/networking/ip-sysctl.rst, accept_ra).
		if d := around.defaults[unix.AF_INET6]; d.learnt {
			s = append(s, setting{name: "ipv6/conf/" + d.link + "/accept_ra", want: "2", enough: []string{"0"}})
		}
		s = append(s, setting{name: "ipv6/conf/all/forwarding", want: "1", enough: []string{"2"}})
	}
	if hasDefault(plan, unix.AF_INET) {
		s = append(s, setting{name: "ipv4/conf/all/src_valid_mark", want: "1"})
	}
	return s
}

// forwards reports whether the machine carries packets of others than itself: it has pods, more
// than its own addresses, or is the way for its location.
func forwards(plan mesh.HostPlan, family int) bool {
	others := func(p netip.Prefix) bool {
		return familyOf(p.Addr()) == family && !slices.Contains(plan.Addresses, p)
	}
	f := plan.Firewall
	return slices.ContainsFunc(f.Pods, others) || slices.ContainsFunc(f.Local, others) || slices.ContainsFunc(f.Behind, others)
}

// settingSteps are those of our own link and those of the machine, which begins to forward only
// when the firewall stands.
func (h *Host) settingSteps(want []setting) (own, steps []step) {
	strict, _ := h.opt.readSetting("ipv4/conf/all/rp_filter")
	for _, s := range want {
		have, err := h.opt.readSetting(s.name)
		if err != nil && s.own { // the link is yet to be made, and begins with this
			have, _ = h.opt.readSetting(strings.Replace(s.name, h.opt.Interface, "default", 1))
		}
		if have == s.want {
			continue
		}
		loose := strings.HasSuffix(s.name, "/rp_filter") && strict == "1"
		if slices.Contains(s.enough, have) && !loose {
			continue
		}
		step := step{
			changes: []mesh.HostChange{{What: "sysctl", Name: dotted(s.name), Old: have, New: s.want}}, field: dotted(s.name),
			do: func(*kernel) error { return h.change(s) }, needs: []string{firewall},
		}
		if s.own {
			step.needs = []string{tunnel}
			own = append(own, step)
			continue
		}
		steps = append(steps, step)
	}
	return own, steps
}

// dotted is the name that sysctl(8) has for it, but for dots in the name of a link.
func dotted(name string) string { return "net." + strings.ReplaceAll(name, "/", ".") }

func (o Options) readSetting(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(o.SysctlDir, name))
	return strings.TrimSpace(string(b)), err
}

func (o Options) writeSetting(name, value string) error {
	if err := os.WriteFile(filepath.Join(o.SysctlDir, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", dotted(name), value, err)
	}
	return nil
}

// changed is a setting that was changed, as it is remembered.
type changed struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// change sets a value and remembers the old one, first of all. Some values change others along:
// those are remembered too, also where they stay, as the way back changes them too. A disk that
// has no room keeps no node from forwarding: see saveSettings.
func (h *Host) change(s setting) error {
	if s.own {
		return h.opt.writeSetting(s.name, s.want)
	}
	before := h.opt.valuesOf(h.opt.along(s.name))
	old, err := h.opt.readSetting(s.name)
	if err != nil {
		return fmt.Errorf("read %s: %w", dotted(s.name), err)
	}
	h.unsaved = append(h.unsaved, changed{s.name, old, s.want})
	_ = h.saveSettings() // Apply tries again, and names the error
	if err := h.opt.writeSetting(s.name, s.want); err != nil {
		return err
	}
	for name, now := range h.opt.valuesOf(h.opt.along(s.name)) {
		if was, found := before[name]; found {
			h.unsaved = append(h.unsaved, changed{name, was, now})
		}
	}
	return nil
}

// saveSettings writes down the old values that no file has yet. What cannot be written is kept
// for the next time.
func (h *Host) saveSettings() error {
	if len(h.unsaved) == 0 {
		return nil
	}
	err := h.opt.remember(h.unsaved)
	if err == nil {
		h.unsaved = nil
	}
	return err
}

func (o Options) unsavedSettings(err error) mesh.Problem {
	return o.named("sysctl", "", mesh.HostConflict,
		fmt.Sprintf("the old values of sysctls cannot be written down (%v); they are set all the same, and an uninstall after a restart would not restore them", err),
		"make room in "+o.StateDir+", and let this process write there")
}

// along are the settings that the kernel changes together with one: a switch of all links is
// one of each, and IPv4 stops obeying redirects when it forwards. Our own link goes anyway.
func (o Options) along(name string) (names []string) {
	var pattern string
	switch name {
	case "ipv4/ip_forward":
		names, pattern = []string{"ipv4/conf/all/accept_redirects"}, "ipv4/conf/*/forwarding"
	case "ipv6/conf/all/forwarding":
		pattern = "ipv6/conf/*/forwarding"
	default:
		return nil
	}
	paths, _ := filepath.Glob(filepath.Join(o.SysctlDir, pattern))
	for _, p := range paths {
		if n := strings.TrimPrefix(p, o.SysctlDir+"/"); n != name && !strings.HasSuffix(n, "/"+o.Interface+"/forwarding") {
			names = append(names, n)
		}
	}
	return names
}

func (o Options) valuesOf(names []string) map[string]string {
	values := make(map[string]string)
	for _, name := range names {
		if v, err := o.readSetting(name); err == nil {
			values[name] = v
		}
	}
	return values
}

func (o Options) memoryPath() string { return filepath.Join(o.StateDir, o.Interface+".sysctls.json") }

func (o Options) remembered() (list []changed, err error) {
	b, err := os.ReadFile(o.memoryPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("old values of sysctls: %w", err)
	}
	return list, nil
}

// remember keeps the oldest value of each setting.
func (o Options) remember(more []changed) error {
	list, err := o.remembered()
	if err != nil {
		o.Log.Error().Err(err).Msg("the file of old sysctl values is damaged, uninstall will not restore those")
	}
	before := slices.Clone(list)
	for _, c := range more {
		i := slices.IndexFunc(list, func(known changed) bool { return known.Name == c.Name })
		if i < 0 {
			list = append(list, c)
			continue
		}
		list[i].New = c.New
	}
	if slices.Equal(before, list) {
		return nil // a disk may take seconds to be sure, and a repair has no time
	}
	b, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(o.memoryPath(), append(b, '\n'), 0o600)
}

// restoreSteps undo what was changed and is still as it was left: what an administrator has set
// since stays.
func (o Options) restoreSteps() (steps []step, err error) {
	list, err := o.remembered()
	for _, c := range list {
		now, err := o.readSetting(c.Name)
		if err != nil || now != c.New {
			continue
		}
		s := step{field: dotted(c.Name), do: func(*kernel) error { return o.restore(c) }}
		if c.New != c.Old {
			s.changes = []mesh.HostChange{{What: "sysctl", Name: dotted(c.Name), Old: c.New, New: c.Old}}
		}
		steps = append(steps, s)
	}
	return append(steps, step{do: func(*kernel) error { return o.forgetSettings() }}), err
}

// restore writes an old value, unless its link has gone, or an earlier one has brought it back
// along.
func (o Options) restore(c changed) error {
	now, err := o.readSetting(c.Name)
	if errors.Is(err, fs.ErrNotExist) || now == c.Old {
		return nil
	}
	return o.writeSetting(c.Name, c.Old)
}

func (o Options) forgetSettings() error {
	if err := os.Remove(o.memoryPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
