//go:build linux

package host

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Where things are in a message of the kernel's (linux/netlink.h, linux/rtnetlink.h).
const (
	atType          = 4
	atFamily        = unix.NLMSG_HDRLEN
	atRouteDstLen   = unix.NLMSG_HDRLEN + 1
	atRouteProtocol = unix.NLMSG_HDRLEN + 5
	atAddrScope     = unix.NLMSG_HDRLEN + 3
	atIndex         = unix.NLMSG_HDRLEN + 4 // of a link, in messages of links and of addresses
	sizeofRuleHdr   = 12
	sizeofNetConf   = 4
	confIndex       = 1      // NETCONFA_IFINDEX of linux/netconf.h
	allLinks        = -1     // NETCONFA_IFINDEX_ALL
	attributeKind   = 0x3fff // without the flags
)

// routeFilter has the kernel drop the routes of others before they wake anybody, as there may be
// thousands a second: a route must be of our protocol, or a default route. Each notification is
// one datagram with one message.
func (o Options) routeFilter() []unix.SockFilter {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: atType, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: asLoaded(unix.RTM_NEWROUTE), SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: asLoaded(unix.RTM_DELROUTE), SkipTrue: 4},
		bpf.LoadAbsolute{Off: atRouteProtocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(o.Protocol), SkipTrue: 2},
		bpf.LoadAbsolute{Off: atRouteDstLen, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		bpf.RetConstant{Val: 0xffffffff},
		bpf.RetConstant{Val: 0},
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil // everything is then sorted here
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return filter
}

// asLoaded is a number of the machine's byte order as a filter sees it, which loads the
// network's.
func asLoaded(n uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n)))
}

// messages calls f for each message of a datagram.
func messages(b []byte, f func(kind uint16, message []byte)) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[atType:]), b[:n])
		b = b[min(len(b), (n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
}

// sortRoute tells what is ours from what is around.
func (h *Host) sortRoute(b []byte) (ours, around bool) {
	messages(b, func(kind uint16, m []byte) {
		if len(m) < unix.NLMSG_HDRLEN+8 {
			return
		}
		switch kind {
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			mine := int(m[atRouteProtocol]) == h.opt.Protocol
			ours, around = ours || mine, around || !mine && m[atRouteDstLen] == 0
		case unix.RTM_NEWRULE, unix.RTM_DELRULE:
			ours = ours || isOurRule(m, byte(h.opt.Protocol))
		case unix.RTM_NEWNETCONF:
			ours = ours || h.isOurConf(m)
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			mine := h.isOurLink(m)
			ours, around = ours || mine, around || !mine && m[atAddrScope] < unix.RT_SCOPE_LINK
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			mine := m[atFamily] == unix.AF_UNSPEC && h.opt.owns(nameOf(m))
			ours, around = ours || mine, around || !mine && m[atFamily] == unix.AF_UNSPEC
		}
	})
	return ours, around
}

func (h *Host) isOurLink(m []byte) bool {
	return int(binary.NativeEndian.Uint32(m[atIndex:])) == int(h.index.Load())
}

// isOurConf is for forwarding and the like, of all links or of ours.
func (h *Host) isOurConf(m []byte) (ours bool) {
	attributes(m, unix.NLMSG_HDRLEN+sizeofNetConf, func(kind uint16, value []byte) {
		if kind == confIndex && len(value) == 4 {
			index := int32(binary.NativeEndian.Uint32(value))
			ours = index == allLinks || int64(index) == h.index.Load()
		}
	})
	return ours
}

// nameOf is the name in a message about a link.
func nameOf(m []byte) (name string) {
	attributes(m, unix.NLMSG_HDRLEN+unix.SizeofIfInfomsg, func(kind uint16, value []byte) {
		if kind == unix.IFLA_IFNAME {
			name = string(bytes.TrimRight(value, "\x00"))
		}
	})
	return name
}

func isOurRule(m []byte, protocol byte) (ours bool) {
	attributes(m, unix.NLMSG_HDRLEN+sizeofRuleHdr, func(kind uint16, value []byte) {
		if kind == unix.FRA_PROTOCOL && len(value) == 1 {
			ours = value[0] == protocol
		}
	})
	return ours
}

// attributes calls f for each attribute of a message, behind its headers.
func attributes(m []byte, from int, f func(kind uint16, value []byte)) {
	for b := m[min(from, len(m)):]; len(b) >= unix.SizeofNlAttr; {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofNlAttr || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&attributeKind, b[unix.SizeofNlAttr:n])
		b = b[min(len(b), (n+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
}

// nftSorter sorts messages about nftables. It belongs to one goroutine.
type nftSorter struct {
	link  []byte          // the name of our interface, as a rule has it
	drops map[string]bool // foreign chains that drop what is forwarded or comes in
	noted *atomic.Uint64  // counts what concerns us of foreign chains
}

// sort looks for the name of our table, which is the first attribute of every message about what
// is in it. Of the tables of others two things are ours to notice: a chain that begins or ceases
// to drop, and a rule that names our interface.
func (s *nftSorter) sort(b []byte) (ours, _ bool) {
	messages(b, func(kind uint16, m []byte) {
		const name = unix.NLMSG_HDRLEN + nfGenMsg + unix.SizeofNlAttr
		if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m) < name {
			return
		}
		if m[atFamily] == unix.NFPROTO_INET && bytes.HasPrefix(m[name:], []byte(tableName+"\x00")) {
			ours = true
			return
		}
		var noted bool
		switch kind & 0xff {
		case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
			noted = s.dropChanged(m, kind&0xff == unix.NFT_MSG_NEWCHAIN)
		case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
			noted = bytes.Contains(m, s.link)
		}
		if noted {
			s.noted.Add(1)
			ours = true
		}
	})
	return ours, false
}

// dropChanged takes down whether a foreign chain drops. Who declares the same chain again and
// again, as kube-proxy does, changes nothing.
func (s *nftSorter) dropChanged(m []byte, exists bool) bool {
	var key string
	hook, policy := uint32(unix.NF_INET_NUMHOOKS), uint32(verdictDrop+1)
	attributes(m, unix.NLMSG_HDRLEN+nfGenMsg, func(kind uint16, value []byte) {
		switch {
		case kind == unix.NFTA_CHAIN_TABLE, kind == unix.NFTA_CHAIN_NAME:
			key += string(value)
		case kind == unix.NFTA_CHAIN_POLICY && len(value) == 4:
			policy = binary.BigEndian.Uint32(value)
		case kind == unix.NFTA_CHAIN_HOOK:
			attributes(value, 0, func(kind uint16, number []byte) {
				if kind == unix.NFTA_HOOK_HOOKNUM && len(number) == 4 {
					hook = binary.BigEndian.Uint32(number)
				}
			})
		}
	})
	key = chainKey(m[atFamily], key)
	was := s.drops[key]
	if !exists { // the kernel names it and says no more
		delete(s.drops, key)
		return was
	}
	if hook != unix.NF_INET_FORWARD && hook != unix.NF_INET_LOCAL_IN {
		return false
	}
	drops := policy == verdictDrop
	if delete(s.drops, key); drops {
		s.drops[key] = true
	}
	return drops != was
}

// chainKey tells chains apart, by their family and their names as the kernel has them.
func chainKey(family byte, names string) string { return string([]byte{family}) + names }

// know takes down those that are there at the beginning.
func (s *nftSorter) know(chains []foreign) {
	for _, f := range chains {
		if f.drops {
			s.drops[chainKey(byte(f.family), f.table+"\x00"+f.chain+"\x00")] = true
		}
	}
}
