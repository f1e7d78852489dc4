//go:build linux

package host

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	nfnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
)

// firewall is the field of a problem, and what a step provides.
const firewall = "firewall"

// tableState is our table as the kernel has it.
type tableState struct {
	exists bool
	shape  []string // of chains, rules and sets, as shapeOf
	sets   map[string][]interval
}

// firewallSteps is at most one step: a transaction that holds the difference alone. Where the
// shape of the table differs, the difference is the table.
func firewallSteps(have tableState, want ruleset) ([]step, error) {
	shape, err := want.shape()
	if err != nil {
		return nil, err
	}
	s := step{provides: firewall, field: firewall}
	if slices.Equal(have.shape, shape) {
		s.changes = want.elementChanges(have)
		s.do = func(k *kernel) error { return k.changeElements(have, want) }
	} else {
		s.changes = []mesh.HostChange{{What: "table", Name: "inet " + tableName, New: want.String()}}
		if have.exists {
			s.changes[0].Old = firstDifference(have.shape, shape)
		}
		s.do = func(k *kernel) error { return k.rebuild(want) }
	}
	if s.changes == nil {
		return nil, nil
	}
	return []step{s}, nil
}

func (r ruleset) String() string {
	rules, elements := 0, 0
	for _, c := range r.chains {
		rules += len(c.rules)
	}
	for _, s := range r.sets {
		elements += len(s.elements)
	}
	return fmt.Sprintf("%d chains, %d rules, %d sets, %d elements", len(r.chains), rules, len(r.sets), elements)
}

func firstDifference(have, want []string) string {
	for _, line := range have {
		if !slices.Contains(want, line) {
			return "had " + line
		}
	}
	for _, line := range want {
		if !slices.Contains(have, line) {
			return "lacked " + line
		}
	}
	return "in another order"
}

// shape is what of the table does not depend on the mesh, line by line.
func (r ruleset) shape() (lines []string, err error) {
	for _, c := range r.chains {
		lines = append(lines, chainLine(c.name, c.kind, c.hook, c.priority))
		for i, f := range c.rules {
			tag, err := f.tag()
			if err != nil {
				return nil, err
			}
			lines = append(lines, ruleLine(c.name, i, tag))
		}
	}
	for _, s := range r.sets {
		lines = append(lines, setLine(s.name, s.kind.Name, s.isInterval()))
	}
	slices.Sort(lines)
	return lines, nil
}

func chainLine(name string, kind nftables.ChainType, hook nftables.ChainHook, priority nftables.ChainPriority) string {
	return fmt.Sprintf("chain %s %s %d %d", name, kind, hook, priority)
}

func ruleLine(chain string, index int, tag string) string {
	return fmt.Sprintf("rule %s %02d %s", chain, index, tag)
}

func setLine(name, kind string, interval bool) string {
	return fmt.Sprintf("set %s %s %t", name, kind, interval)
}

// findTable returns the table of our name, nil when there is none.
func (k *kernel) findTable() (*nftables.Table, error) {
	tables, err := k.nft.ListTablesOfFamily(nftables.TableFamilyINet)
	i := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName })
	if i < 0 || err != nil {
		return nil, err
	}
	return tables[i], nil
}

func (k *kernel) readTable() (t tableState, err error) {
	table, err := k.findTable()
	if table == nil || err != nil {
		return t, err
	}
	chains, err := k.nft.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return t, err
	}
	for _, c := range chains {
		if c.Table.Name == tableName {
			t.shape = append(t.shape, chainShape(c))
		}
	}
	t.exists = len(t.shape) > 0 // what is left of a table without chains is made anew
	rules, err := k.readTags()
	if err != nil {
		return t, err
	}
	t.shape = append(t.shape, rules...)
	if err := k.readSets(table, &t); err != nil {
		return t, err
	}
	slices.Sort(t.shape)
	return t, nil
}

// tagged is the line of a rule whose comment is a tag.
var tagged = regexp.MustCompile(`^rule \S+ \d+ .+ [0-9a-f]{8}$`)

// foreign reports whether somebody else has made the table: it has something, and neither a rule
// that an agent of any version wrote, nor a chain or set of ours.
func (t tableState) foreign(want ruleset) (bool, error) {
	shape, err := want.shape()
	ours := func(line string) bool { return tagged.MatchString(line) || slices.Contains(shape, line) }
	return len(t.shape) > 0 && !slices.ContainsFunc(t.shape, ours), err
}

// notOurs names a table of our name that is somebody else's.
func notOurs() error {
	return &problemError{mesh.HostConflict,
		fmt.Sprintf("somebody else has made the nftables table inet %s, it is left alone, and nothing goes into the tunnel without a firewall", tableName),
		"give it another name, or remove it with nft delete table inet " + tableName}
}

func chainShape(c *nftables.Chain) string {
	if c.Hooknum == nil || c.Priority == nil || c.Policy == nil || *c.Policy != nftables.ChainPolicyAccept {
		return "chain " + c.Name + " of another kind"
	}
	return chainLine(c.Name, c.Type, *c.Hooknum, *c.Priority)
}

func (k *kernel) readSets(table *nftables.Table, t *tableState) error {
	sets, err := k.nft.GetSets(table)
	if err != nil {
		return err
	}
	t.sets = make(map[string][]interval)
	for _, s := range sets {
		elements, err := k.nft.GetSetElements(s)
		if err != nil {
			return err
		}
		t.sets[s.Name] = fromElements(elements, s.Interval)
		t.shape = append(t.shape, setLine(s.Name, s.KeyType.Name, s.Interval))
	}
	return nil
}

// readTags returns a line for each rule of our table.
func (k *kernel) readTags() (lines []string, err error) {
	messages, err := k.dumpRules(append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attribute(unix.NFTA_RULE_TABLE, tableName)...))
	if err != nil {
		return nil, err
	}
	count := make(map[string]int)
	for _, m := range messages {
		var chain, tag string
		attributes(m.Data, nfGenMsg, func(kind uint16, value []byte) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				chain = strings.TrimRight(string(value), "\x00")
			case unix.NFTA_RULE_USERDATA:
				tag = commentOf(value)
			}
		})
		lines = append(lines, ruleLine(chain, count[chain], tag))
		count[chain]++
	}
	return lines, nil
}

func attribute(kind uint16, text string) []byte {
	b, _ := nfnetlink.MarshalAttributes([]nfnetlink.Attribute{{Type: kind, Data: []byte(text + "\x00")}})
	return b
}

// nfGenMsg is the size of the header of every message of the subsystem.
const nfGenMsg = 4

// commentOf is the comment of a rule, "" where there is none that can be read.
func commentOf(data []byte) string {
	if len(data) < 2 || len(data) < 2+int(data[1]) || data[0] != byte(userdata.TypeComment) {
		return ""
	}
	return strings.TrimRight(string(data[2:2+int(data[1])]), "\x00")
}

// rebuild replaces the table by one of another shape, in one transaction.
func (k *kernel) rebuild(want ruleset) error {
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	k.nft.AddTable(table) // so that there is one to remove
	k.nft.DelTable(table)
	k.nft.AddTable(table)
	for i, s := range want.sets {
		if err := k.nft.AddSet(s.inKernel(table, i), nil); err != nil {
			return err
		}
	}
	for _, c := range want.chains {
		if err := k.addChain(table, c); err != nil {
			return err
		}
	}
	for i, s := range want.sets {
		if err := k.elements(k.nft.SetAddElements, s.inKernel(table, i), s.elements); err != nil {
			return err
		}
	}
	return k.commit()
}

func (k *kernel) addChain(table *nftables.Table, c chain) error {
	policy := nftables.ChainPolicyAccept
	chain := k.nft.AddChain(&nftables.Chain{
		Name: c.name, Table: table, Type: c.kind, Hooknum: &c.hook, Priority: &c.priority, Policy: &policy,
	})
	for _, f := range c.rules {
		tag, err := f.tag()
		if err != nil {
			return err
		}
		k.nft.AddRule(&nftables.Rule{
			Table: table, Chain: chain, Exprs: f.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, tag),
		})
	}
	return nil
}

// inKernel is the set with the number that it has within one transaction. Left to itself the
// library counts on for the whole process, without a lock.
func (s set) inKernel(table *nftables.Table, i int) *nftables.Set {
	return &nftables.Set{Table: table, ID: uint32(i + 1), Name: s.name, KeyType: s.kind, Interval: s.isInterval()}
}

// chunk is how many elements go into one message, whose attributes can hold 64 KiB.
const chunk = 1000

func (k *kernel) elements(change func(*nftables.Set, []nftables.SetElement) error, s *nftables.Set, intervals []interval) error {
	for some := range slices.Chunk(toElements(intervals, s.Interval), chunk) {
		if err := change(s, some); err != nil {
			return err
		}
	}
	return nil
}

func (r ruleset) elementChanges(have tableState) (changes []mesh.HostChange) {
	for _, s := range r.sets {
		add, remove := diffElements(have.sets[s.name], s.elements)
		for _, i := range add {
			changes = append(changes, mesh.HostChange{What: "set", Name: s.name, New: i.String()})
		}
		for _, i := range remove {
			changes = append(changes, mesh.HostChange{What: "set", Name: s.name, Old: i.String()})
		}
	}
	return changes
}

// changeElements removes before it adds: within one transaction nobody sees the time between,
// and an interval may take the place of one that it overlaps.
func (k *kernel) changeElements(have tableState, want ruleset) error {
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	var adds []func() error
	for i, s := range want.sets {
		add, remove := diffElements(have.sets[s.name], s.elements)
		ks := s.inKernel(table, i)
		if err := k.elements(k.nft.SetDeleteElements, ks, remove); err != nil {
			return err
		}
		adds = append(adds, func() error { return k.elements(k.nft.SetAddElements, ks, add) })
	}
	for _, add := range adds {
		if err := add(); err != nil {
			return err
		}
	}
	return k.commit()
}

func (k *kernel) commit() error {
	if err := k.nft.Flush(); err != nil {
		return fmt.Errorf("nftables transaction: %w", err)
	}
	return nil
}
