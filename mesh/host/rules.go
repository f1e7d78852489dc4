//go:build linux

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// rule is one routing rule of our protocol.
type rule struct {
	Family      int
	Priority    int
	Mark        uint32 // 0: of any mark
	NotMark     uint32 // 0: as Mark; never both
	Table       int
	NoDefault   bool // suppress_prefixlength 0: the default route of the table is not for this rule
	unknownPart bool // it has something that none of ours has
}

func (r rule) name() string {
	if r.Family == unix.AF_INET6 {
		return fmt.Sprintf("%d IPv6", r.Priority)
	}
	return fmt.Sprintf("%d IPv4", r.Priority)
}

func (r rule) String() string {
	text := ""
	switch {
	case r.NotMark != 0:
		text = fmt.Sprintf("not fwmark %#x ", r.NotMark)
	case r.Mark != 0:
		text = fmt.Sprintf("fwmark %#x ", r.Mark)
	}
	table := fmt.Sprint(r.Table)
	if r.Table == unix.RT_TABLE_MAIN {
		table = "main"
	}
	text += "lookup " + table
	if r.NoDefault {
		text += " suppress_prefixlength 0"
	}
	if r.unknownPart {
		text += ", and more"
	}
	return text
}

// The two rules that stand just before the main table, behind those of everybody else: what is
// for the node itself takes the main table as anything does, but for its default route.
const (
	priorityMain = 32764
	priorityLast = 32765
)

// wantRules are those of a family. The first is for what is forwarded to other nodes' internal
// IPs. With a default route in the tunnel there are two more: what a
// link of the machine or a static route knows better goes there first. Our own outer packets are
// left to the main table altogether.
func (o Options) wantRules(family int, defaultRoute bool) []rule {
	rules := []rule{
		{Family: family, Priority: o.Priority, Mark: o.crossMark(), Table: o.table(forwarded)},
		{Family: family, Priority: o.Priority + 1, NotMark: o.FwMark, Table: o.table(remote), NoDefault: true},
	}
	if defaultRoute {
		rules = append(rules,
			rule{Family: family, Priority: o.Priority + 2, Table: unix.RT_TABLE_MAIN, NoDefault: true},
			rule{Family: family, Priority: o.Priority + 3, NotMark: o.FwMark, Table: o.table(remote)})
	}
	return append(rules,
		rule{Family: family, Priority: priorityMain, NotMark: o.FwMark, Table: unix.RT_TABLE_MAIN, NoDefault: true},
		rule{Family: family, Priority: priorityLast, NotMark: o.FwMark, Table: o.table(last)})
}

func ruleSteps(o Options, have, want []rule) (add, remove []step) {
	left := slices.Clone(have)
	for _, w := range want {
		if i := slices.Index(left, w); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		add = append(add, step{
			changes: []mesh.HostChange{{What: "rule", Name: w.name(), New: w.String()}}, field: "rule",
			do: func(k *kernel) error { return k.changeRule(o, w, unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL) },
		})
	}
	for _, r := range left {
		remove = append(remove, step{
			changes: []mesh.HostChange{{What: "rule", Name: r.name(), Old: r.String()}}, field: "rule",
			do: func(k *kernel) error { return k.changeRule(o, r, unix.RTM_DELRULE, 0) },
		})
	}
	return add, remove
}

// readRules returns the rules of our protocol, wherever they stand.
func (k *kernel) readRules(o Options) (rules []rule, err error) {
	for _, family := range families() {
		list, err := dumped(func() ([]netlink.Rule, error) { return k.route.RuleList(family) })
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read routing rules: %w", err)
		}
		for _, r := range list {
			if int(r.Protocol) == o.Protocol {
				rules = append(rules, ruleFromKernel(r, family))
			}
		}
	}
	return rules, nil
}

func ruleFromKernel(r netlink.Rule, family int) rule {
	out := rule{Family: family, Priority: r.Priority, Table: r.Table, NoDefault: r.SuppressPrefixlen == 0}
	out.unknownPart = r.Src != nil || r.Dst != nil || r.IifName != "" || r.OifName != "" || r.Dport != nil || r.Sport != nil ||
		r.IPProto != 0 || r.UIDRange != nil || r.Tos != 0 || r.Goto > 0 || r.Invert && r.Mark == 0
	if r.Invert {
		out.NotMark = r.Mark
	} else {
		out.Mark = r.Mark
	}
	return out
}

// changeRule adds or removes a rule. The library leaves suppress_prefixlength out where the
// number of the table takes more than a byte.
func (k *kernel) changeRule(o Options, r rule, what, flags int) error {
	msg := nl.NewRtMsg()
	msg.Family, msg.Protocol, msg.Scope, msg.Table = uint8(r.Family), 0, unix.RT_SCOPE_UNIVERSE, unix.RT_TABLE_UNSPEC
	msg.Type = unix.FR_ACT_TO_TBL
	req := nl.NewNetlinkRequest(what, flags|unix.NLM_F_ACK)
	req.AddData(msg)
	number := func(attribute int, value uint32) {
		req.AddData(nl.NewRtAttr(attribute, binary.NativeEndian.AppendUint32(nil, value)))
	}
	number(nl.FRA_PRIORITY, uint32(r.Priority))
	number(nl.FRA_TABLE, uint32(r.Table))
	if r.NotMark != 0 {
		msg.Flags |= netlink.FibRuleInvert
	}
	if mark := r.Mark | r.NotMark; mark != 0 {
		number(nl.FRA_FWMARK, mark)
	}
	if r.NoDefault {
		number(nl.FRA_SUPPRESS_PREFIXLEN, 0)
	}
	req.AddData(nl.NewRtAttr(nl.FRA_PROTOCOL, nl.Uint8Attr(uint8(o.Protocol))))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	absent := what == unix.RTM_DELRULE && errors.Is(err, unix.ENOENT)
	present := what == unix.RTM_NEWRULE && errors.Is(err, unix.EEXIST)
	if err != nil && !absent && !present {
		return fmt.Errorf("rule %s %s: %w", r.name(), r, err)
	}
	return nil
}
