//go:build linux

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	nfnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// An accept in our table does not help where a chain of another table drops: each base chain of
// a hook has its say.

// foreign is a base chain of others at the forward or input hook, and what is in it for us.
type foreign struct {
	family nftables.TableFamily
	table  string
	chain  string
	hook   nftables.ChainHook
	drops  bool     // what none of its rules has accepted
	ours   []uint64 // handles of rules that we put there
	opened bool     // it has a rule that names our interface
}

func (f foreign) String() string {
	return fmt.Sprintf("%s %s %s", familyName(f.family), f.table, f.chain)
}

func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	}
	return "inet"
}

// forwardTag is the comment of a rule of ours in a chain of others.
func (o Options) forwardTag() string { return "stillwire forwards " + o.Interface }

// foreignLook is what was found in the chains of others.
type foreignLook struct {
	chains  []foreign
	filters uint64 // Host.filters when it was read
	at      time.Time
}

// foreignFor is how long a look at foreign chains is good. Not all that may happen to them is
// noticed, and there may be ten thousand.
const foreignFor = 30 * time.Second

func (h *Host) foreignChains(k *kernel) ([]foreign, error) {
	now := h.filters.Load()
	if l := h.foreign; l != nil && h.watched.Load() && !h.opt.NoRepair && l.filters == now && time.Since(l.at) < foreignFor {
		return l.chains, nil
	}
	h.foreign = nil
	chains, err := k.readForeign(h.opt)
	if err == nil {
		h.foreign = &foreignLook{chains, now, time.Now()}
	}
	return chains, err
}

// readForeign looks at the base chains of all tables but ours. Tables of xtables without
// nftables cannot be seen this way.
func (k *kernel) readForeign(o Options) (out []foreign, err error) {
	chains, err := k.nft.ListChains()
	if err != nil {
		return nil, noNFT(fmt.Errorf("read nftables chains: %w", err))
	}
	for _, c := range chains {
		relevant := c.Hooknum != nil && (*c.Hooknum == *nftables.ChainHookForward || *c.Hooknum == *nftables.ChainHookInput) &&
			c.Type == nftables.ChainTypeFilter && c.Table.Name != tableName
		ip := c.Table.Family == nftables.TableFamilyIPv4 || c.Table.Family == nftables.TableFamilyIPv6 || c.Table.Family == nftables.TableFamilyINet
		if !relevant || !ip {
			continue
		}
		f := foreign{family: c.Table.Family, table: c.Table.Name, chain: c.Name, hook: *c.Hooknum}
		f.drops = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		if err := k.lookInto(o, &f); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// noNFT says so when the kernel does not know the subsystem at all, which it calls an invalid
// argument.
func noNFT(err error) error {
	for _, none := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT} {
		if errors.Is(err, none) {
			return &problemError{mesh.Unsupported, "the kernel has no nftables, and without it no route into the tunnel is added",
				"load the module nf_tables, or run in netstack mode"}
		}
	}
	return err
}

// lookInto reads the rules of a chain. One at the end that drops or rejects whatever comes is
// as good as a policy.
func (k *kernel) lookInto(o Options, f *foreign) error {
	rules, err := k.readRulesOf(f.family, f.table, f.chain)
	if errors.Is(err, unix.ENOENT) {
		return nil // it has gone since
	}
	if err != nil {
		return fmt.Errorf("read nftables chain %s: %w", f, err)
	}
	for i, r := range rules {
		if r.comment == o.forwardTag() {
			f.ours = append(f.ours, r.handle)
			continue
		}
		f.opened = f.opened || bytes.Contains(r.expressions, linkBytes(o.Interface))
		f.drops = f.drops || i == len(rules)-1 && dropsAll(r.expressions)
	}
	return nil
}

func linkBytes(name string) []byte { return append([]byte(name), 0) }

// foreignRule is what is to be known of a rule of others.
type foreignRule struct {
	handle      uint64
	comment     string
	expressions []byte // as the kernel gives them
}

func (k *kernel) readRulesOf(family nftables.TableFamily, table, chain string) (rules []foreignRule, err error) {
	body := append([]byte{byte(family), 0, 0, 0}, attribute(unix.NFTA_RULE_TABLE, table)...)
	messages, err := k.dumpRules(append(body, attribute(unix.NFTA_RULE_CHAIN, chain)...))
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		var r foreignRule
		attributes(m.Data, nfGenMsg, func(kind uint16, value []byte) {
			switch kind {
			case unix.NFTA_RULE_HANDLE:
				r.handle = binary.BigEndian.Uint64(value)
			case unix.NFTA_RULE_USERDATA:
				r.comment = commentOf(value)
			case unix.NFTA_RULE_EXPRESSIONS:
				r.expressions = value
			}
		})
		rules = append(rules, r)
	}
	return rules, nil
}

// dropsAll reports whether a rule has no condition and drops or rejects.
func dropsAll(expressions []byte) bool {
	final := false
	conditional := false
	attributes(expressions, 0, func(_ uint16, e []byte) {
		var name string
		var data []byte
		attributes(e, 0, func(kind uint16, value []byte) {
			if kind == unix.NFTA_EXPR_NAME {
				name = string(bytes.TrimRight(value, "\x00"))
			} else {
				data = value
			}
		})
		switch name {
		case "counter", "log":
		case "reject":
			final = true
		case "immediate":
			final = final || isDrop(data)
		default:
			conditional = true
		}
	})
	return final && !conditional
}

// verdictDrop is NF_DROP of linux/netfilter.h.
const verdictDrop = 0

// isDrop looks for the verdict in the data of an immediate expression.
func isDrop(data []byte) (drop bool) {
	attributes(data, 0, func(kind uint16, value []byte) {
		if kind != unix.NFTA_IMMEDIATE_DATA {
			return
		}
		attributes(value, 0, func(kind uint16, verdict []byte) {
			if kind != unix.NFTA_DATA_VERDICT {
				return
			}
			attributes(verdict, 0, func(kind uint16, code []byte) {
				drop = drop || kind == unix.NFTA_VERDICT_CODE && binary.BigEndian.Uint32(code) == verdictDrop
			})
		})
	})
	return drop
}

// forwardSteps opens the chains that drop, or names them. Without need, nothing is left in them.
func (h *Host) forwardSteps(chains []foreign, plan mesh.HostPlan) (steps []step, problems []mesh.Problem) {
	o := h.opt
	for _, f := range chains {
		if f.hook != *nftables.ChainHookForward {
			continue
		}
		needed := f.drops && !f.opened && (f.family != nftables.TableFamilyIPv6 && forwards(plan, unix.AF_INET) || f.family != nftables.TableFamilyIPv4 && forwards(plan, unix.AF_INET6))
		switch {
		case needed && !o.ForwardRules:
			problems = append(problems, o.named("forward", f.String(), mesh.HostConflict,
				"the chain drops what is forwarded, also from and to the mesh",
				"accept what comes from and goes to "+o.Interface+" there, or allow forward rules"))
		case needed && len(f.ours) != 2:
			steps = append(steps, step{changes: []mesh.HostChange{{What: "forward", Name: f.String(), New: "accept " + o.Interface}},
				field: "forward", do: func(k *kernel) error {
					h.foreign = nil // the handles of its rules are others now
					return k.openForeign(o, f)
				}})
		case len(f.ours) > 0 && (!o.ForwardRules || !f.drops):
			h.foreign = nil
			steps = append(steps, closeForeign(o, f))
		}
	}
	return steps, problems
}

func closeForeign(o Options, f foreign) step {
	return step{changes: []mesh.HostChange{{What: "forward", Name: f.String(), Old: "accept " + o.Interface}},
		field: "forward", do: func(k *kernel) error { return k.closeForeign(f) }}
}

// openForeign puts two rules first. Their words are those of iptables, so that it can list them.
func (k *kernel) openForeign(o Options, f foreign) error {
	if len(f.ours) > 0 {
		k.removeRules(f)
	}
	table := &nftables.Table{Name: f.table, Family: f.family}
	chain := &nftables.Chain{Name: f.chain, Table: table}
	begin := &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(o.Interface)} // and its neighbour's
	for _, which := range [][]expr.Any{
		{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, begin},
		{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, begin},
	} {
		k.nft.InsertRule(&nftables.Rule{
			Table: table, Chain: chain, Exprs: join(which, []expr.Any{&expr.Counter{}}, accept()),
			UserData: userdata.AppendString(nil, userdata.TypeComment, o.forwardTag()),
		})
	}
	return k.commit()
}

func (k *kernel) closeForeign(f foreign) error {
	k.removeRules(f)
	if err := k.commit(); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (k *kernel) removeRules(f foreign) {
	table := &nftables.Table{Name: f.table, Family: f.family}
	for _, handle := range slices.Backward(f.ours) {
		k.nft.DelRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: f.chain, Table: table}, Handle: handle})
	}
}

// tracks reports whether a firewall of the machine may need connection tracking to let in the
// answers to our outer packets.
func tracks(chains []foreign) bool {
	return slices.ContainsFunc(chains, func(f foreign) bool { return f.hook == *nftables.ChainHookInput && f.drops })
}

// dumpRules reads rules as they are: the library would read the expressions too, and knows not
// all.
func (k *kernel) dumpRules(body []byte) (messages []nfnetlink.Message, err error) {
	if k.dump == nil {
		if k.dump, err = nfnetlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return nil, err
		}
	}
	return k.dump.Execute(nfnetlink.Message{
		Header: nfnetlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: nfnetlink.Request | nfnetlink.Dump},
		Data:   body,
	})
}
