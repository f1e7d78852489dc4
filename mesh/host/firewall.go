//go:build linux

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is that of our one table, of the family inet.
const tableName = "stillwire"

// chain is a chain of our table with its rules.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     nftables.ChainHook
	priority nftables.ChainPriority
	rules    []filter
}

// filter is one rule of the firewall.
type filter struct {
	name  string
	exprs []expr.Any
}

// tag is the comment that a rule is known by when it is read back. It changes with what the
// rule does, so that an agent of another version sees the difference. Expressions themselves
// are not compared: each kernel gives them back in its own words.
func (f filter) tag() (string, error) {
	sum := sha256.New()
	for _, e := range f.exprs {
		b, err := expr.Marshal(byte(nftables.TableFamilyINet), e)
		if err != nil {
			return "", fmt.Errorf("firewall rule %q: %w", f.name, err)
		}
		sum.Write(b)
	}
	return f.name + " " + hex.EncodeToString(sum.Sum(nil)[:4]), nil
}

// chains are the rules. Their number does not depend on the mesh: prefixes are in sets.
//
//	in    what comes out of the tunnel comes from a remote prefix, not from a local one, and not
//	      for the loopback; what is for our mesh address comes out of the tunnel or from near
//	turn  what goes from here to another node's internal IP is marked for its own table
//	cross what is forwarded into the tunnel comes from here; TCP fits into it
//	out   what is for a remote prefix leaves by the tunnel or not at all, and so does what is for
//	      a range of the mesh and is nobody's
//	nat   pods reach the world by this node's address
func (o Options) chains() []chain {
	in, cross := o.prerouting(), o.forward()
	var turn, out, nat []filter
	for _, v := range []version{v4, v6} {
		in = append(in, o.incoming(v)...)
		turn = append(turn, o.turned(v)...)
		cross = append(cross, filter{v.name("only local sources into the tunnel"), join(
			o.from(expr.CmpOpNeq), o.to(expr.CmpOpEq), v.is(), v.src(), notIn("local"+v.suffix), notIn("behind"+v.suffix), drop())})
		out = append(out, filter{v.name("remote prefixes by the tunnel alone"), join(
			o.to(expr.CmpOpNeq), o.mark(expr.CmpOpNeq), v.is(), v.dst(), isIn("tunnelled"+v.suffix), notIn("open"+v.suffix), drop())})
		out = append(out, filter{v.name("the mesh by routes of the plan alone"), join(
			o.to(expr.CmpOpNeq), o.mark(expr.CmpOpNeq), v.is(), v.dst(), isIn("reserved"+v.suffix),
			notIn("native"+v.suffix), notIn("local"+v.suffix), notIn("open"+v.suffix), drop())})
		if o.Masquerade {
			nat = append(nat, filter{v.name("pods to the world"), join(
				o.to(expr.CmpOpNeq), v.is(), v.src(), isIn("pods"+v.suffix), v.dst(), notIn("inside"+v.suffix), masquerade())})
		}
	}
	chains := []chain{
		{"in", nftables.ChainTypeFilter, *nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw, in},
		{"turn", nftables.ChainTypeFilter, *nftables.ChainHookPrerouting, afterDNAT(), turn},
		{"cross", nftables.ChainTypeFilter, *nftables.ChainHookForward, *nftables.ChainPriorityMangle, cross},
		{"sent", nftables.ChainTypeFilter, *nftables.ChainHookOutput, *nftables.ChainPriorityRaw, o.sent()},
		{"out", nftables.ChainTypeFilter, *nftables.ChainHookPostrouting, *nftables.ChainPriorityMangle, out},
	}
	if o.Masquerade {
		chains = append(chains, chain{"nat", nftables.ChainTypeNAT, *nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource, nat})
	}
	return chains
}

// afterDNAT is once the address that a packet is really for is known: that of a service may be
// one of a node.
func afterDNAT() nftables.ChainPriority { return *nftables.ChainPriorityNATDest + 50 }

// turned marks what is to be routed by the table of what is forwarded: not what the nodes of the
// location send themselves, should this one be their router. What another program has marked is
// for that to route.
func (o Options) turned(v version) []filter {
	toNodes := join(marked(0), v.is(), v.dst(), isIn("outer"+v.suffix), v.src())
	return []filter{
		{v.name("local sources to nodes"), join(toNodes, isIn("local"+v.suffix), counted(), setMark(o.crossMark()))},
		{v.name("sources behind to nodes"), join(toNodes, isIn("behind"+v.suffix), notIn("neighbours"+v.suffix), counted(), setMark(o.crossMark()))},
	}
}

// prerouting is for the outer packets. With a default route in the tunnel and strict reverse
// path filters the mark has their way back looked up as ours is; see src_valid_mark.
func (o Options) prerouting() []filter {
	return []filter{
		{"what is encapsulated comes from neighbours, IPv4", o.strangersEncap(v4)},
		{"what is encapsulated comes from neighbours, IPv6", o.strangersEncap(v6)},
		{"outer packets are marked", join(isLocal(), udp(), port(dstPort), isIn("port"), setMark(o.FwMark))},
		{"outer packets are not tracked", join(isLocal(), udp(), port(dstPort), isIn("untracked"), notrack())},
	}
}

// strangersEncap keeps others than neighbours from putting packets into the location.
func (o Options) strangersEncap(v version) []expr.Any {
	c := o.carrier()
	at := join(isLocal(), protocol(c.protocol))
	if c.port != 0 {
		at = join(at, port(dstPort), isIn("encapsulated"))
	}
	return join(at, v.is(), v.src(), notIn("neighbours"+v.suffix), drop())
}

func (o Options) sent() []filter {
	return []filter{{"outer packets are not tracked", join(udp(), port(srcPort), isIn("untracked"), notrack())}}
}

func (o Options) incoming(v version) []filter {
	outside := join(o.from(expr.CmpOpNeq), iif("lo", expr.CmpOpNeq), v.is(), v.dst(), isIn("mesh"+v.suffix))
	return []filter{
		{v.name("unknown source out of the tunnel"), join(o.from(expr.CmpOpEq), v.is(), v.src(), notIn("tunnelled"+v.suffix), notIn("outer"+v.suffix), drop())},
		{v.name("local source out of the tunnel"), join(o.from(expr.CmpOpEq), v.is(), v.src(), isIn("local"+v.suffix), drop())},
		{v.name("loopback out of the tunnel"), join(o.from(expr.CmpOpEq), v.is(), v.loopback(), drop())},
		{v.name("unknown source out of the encapsulation"), join(iif(o.encapLink(), expr.CmpOpEq), v.is(), v.src(), notIn("native"+v.suffix), notIn("neighbours"+v.suffix), notIn("outer"+v.suffix), drop())},
		{v.name("loopback out of the encapsulation"), join(iif(o.encapLink(), expr.CmpOpEq), v.is(), v.loopback(), drop())},
		{v.name("neighbours to the mesh address"), join(outside, v.src(), isIn("neighbours"+v.suffix), accept())},
		{v.name("own pods to the mesh address"), join(outside, v.src(), isIn("local"+v.suffix), wayBack(), accept())},
		{v.name("the location to the mesh address"), join(outside, v.src(), isIn("native"+v.suffix), wayBack(), accept())},
		{v.name("strangers to the mesh address"), join(outside, drop())},
	}
}

// forward makes TCP fit, both ways.
func (o Options) forward() []filter {
	return []filter{
		{"TCP fits into the tunnel", join(o.to(expr.CmpOpEq), clampMSS())},
		{"TCP fits back into the tunnel", join(o.from(expr.CmpOpEq), clampMSS())},
	}
}

// version is one of IPv4 and IPv6, in the words of a rule.
type version struct {
	suffix          string // of set names
	proto           byte
	srcAt, dstAt, n uint32 // where the addresses are in the header, and how long
}

var (
	v4 = version{"4", unix.NFPROTO_IPV4, 12, 16, 4}
	v6 = version{"6", unix.NFPROTO_IPV6, 8, 24, 16}
)

func (v version) name(what string) string { return what + ", IPv" + v.suffix }

func (v version) is() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal([]byte{v.proto})}
}

func (v version) src() []expr.Any { return []expr.Any{network(v.srcAt, v.n)} }
func (v version) dst() []expr.Any { return []expr.Any{network(v.dstAt, v.n)} }

func (v version) loopback() []expr.Any {
	if v.n == 4 {
		return []expr.Any{network(v.dstAt, 1), equal([]byte{127})}
	}
	return []expr.Any{network(v.dstAt, v.n), equal(append(make([]byte, 15), 1))}
}

func (o Options) from(op expr.CmpOp) []expr.Any { return iif(o.Interface, op) }

func (o Options) to(op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: linkName(o.Interface)}}
}

func (o Options) mark(op expr.CmpOp) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: native32(o.FwMark)}}
}
