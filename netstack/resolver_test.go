package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"
	"github.com/stillwire/stillwire/device"
)

// nameServer is a real DNS server inside the tunnel, on port 53 of addr.
type nameServer struct {
	udp, tcp atomic.Int32 // queries that came
	handle   func(q dns.Question, tcp bool) *dns.Msg
}

// serve answers on the address until the test ends. A nil answer is silence.
func (ns *nameServer) serve(t testing.TB, n *Net, addr netip.Addr) {
	t.Helper()
	pc, err := n.ListenPacket("udp", netip.AddrPortFrom(addr, 53).String())
	if err != nil {
		t.Fatal(err)
	}
	l, err := n.Listen("tcp", netip.AddrPortFrom(addr, 53).String())
	if err != nil {
		t.Fatal(err)
	}
	servers := []*dns.Server{{PacketConn: genericPacketConn{pc}, Handler: ns.on(false)}, {Listener: l, Handler: ns.on(true)}}
	var group sync.WaitGroup
	for _, s := range servers {
		ready := make(chan struct{})
		s.NotifyStartedFunc = func() { close(ready) }
		group.Go(func() { s.ActivateAndServe() })
		<-ready
	}
	t.Cleanup(func() {
		for _, s := range servers {
			s.Shutdown()
		}
		group.Wait()
	})
}

// genericPacketConn hides the socket's own methods, of which miekg's server would make
// system calls.
type genericPacketConn struct{ net.PacketConn }

func (ns *nameServer) on(tcp bool) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		if tcp {
			ns.tcp.Add(1)
		} else {
			ns.udp.Add(1)
		}
		reply := ns.handle(query.Question[0], tcp)
		if reply == nil {
			return
		}
		rcode := reply.Rcode
		reply.SetReply(query.Copy())
		reply.Rcode = rcode
		if edns := query.IsEdns0(); !tcp && edns != nil {
			reply.Truncate(int(edns.UDPSize()))
		}
		w.WriteMsg(reply)
	})
}

// zone answers from master-file lines; what is not there does not exist.
func zone(t testing.TB, lines ...string) func(dns.Question, bool) *dns.Msg {
	t.Helper()
	var records []dns.RR
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, rr)
	}
	return func(q dns.Question, _ bool) *dns.Msg {
		reply := &dns.Msg{MsgHdr: dns.MsgHdr{RecursionAvailable: true}}
		exists := false
		for name := q.Name; name != ""; {
			next := ""
			for _, rr := range records {
				if !strings.EqualFold(rr.Header().Name, name) {
					continue
				}
				exists = true
				if cname, ok := rr.(*dns.CNAME); ok {
					next = cname.Target
				}
				if rr.Header().Rrtype == q.Qtype || next != "" {
					reply.Answer = append(reply.Answer, rr)
				}
			}
			name = next
		}
		if !exists {
			return failure(dns.RcodeNameError)
		}
		return reply
	}
}

func failure(rcode int) *dns.Msg {
	return &dns.Msg{MsgHdr: dns.MsgHdr{RecursionAvailable: true, Rcode: rcode}}
}

// dnsRig is a client whose DNS servers are behind the tunnel, each on an address of its own.
//
//	client 10.99.0.1 === tunnel === 10.99.0.2 b, with name servers on 10.99.0.{53,54,55}
type dnsRig struct {
	client, far *node
	servers     []netip.Addr
}

func newDNSRig(t testing.TB, client []netip.Prefix, servers ...*nameServer) dnsRig {
	t.Helper()
	far := prefixes(addrB4, addrB6)
	rig := dnsRig{}
	for i := range servers {
		addr := netip.AddrFrom4([4]byte{10, 99, 0, byte(53 + i)})
		rig.servers = append(rig.servers, addr)
		far = append(far, prefixes(addr)...)
	}
	rig.client = openNode(t, Options{Addresses: client, DNS: rig.servers})
	rig.far = openNode(t, Options{Addresses: far})
	introduce(t, rig.client, rig.far)
	for i, ns := range servers {
		ns.serve(t, rig.far.Net, rig.servers[i])
	}
	if _, err := rig.client.Ping(testContext(t), addrB4); err != nil {
		t.Fatal(err)
	}
	return rig
}

func both() []netip.Prefix { return prefixes(addrA4, addrA6) }

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

var byValue = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestResolverAnswers(t *testing.T) {
	many := []string{"edge.example. 60 A 192.0.2.1"}
	for i := range 200 {
		many = append(many, fmt.Sprintf("big.example. 60 A 10.7.0.%d", i))
	}
	ns := &nameServer{handle: zone(t, append(many,
		"host.example. 60 A 10.1.1.1",
		"host.example. 60 AAAA fd00::1",
		"four.example. 60 A 10.1.1.4",
		"six.example. 60 AAAA fd00::6",
		"www.example. 60 CNAME alias.example.",
		"alias.example. 60 CNAME host.example.",
		"db.corp.example. 60 A 10.1.1.5",
		"db.lab.example. 60 A 10.1.1.6",
		"a.b.lab.example. 60 A 10.1.1.7",
	)...)}
	rig := newDNSRig(t, both(), ns)
	rig.client.SetDNS(rig.servers, "corp.example", ".lab.example.")
	tests := []struct {
		network, host string
		want          []netip.Addr
	}{
		{"ip", "host.example", addrs("10.1.1.1", "fd00::1")},
		{"ip", "HOST.Example.", addrs("10.1.1.1", "fd00::1")},
		{"ip4", "host.example", addrs("10.1.1.1")},
		{"ip6", "host.example", addrs("fd00::1")},
		{"ip", "four.example", addrs("10.1.1.4")},
		{"ip", "six.example", addrs("fd00::6")},
		{"ip", "www.example", addrs("10.1.1.1", "fd00::1")},
		{"ip", "db", addrs("10.1.1.5")},
		{"ip", "a.b", addrs("10.1.1.7")},
		{"ip", "10.9.9.9", addrs("10.9.9.9")},
		{"ip", "fd00::9", addrs("fd00::9")},
		{"ip", "::ffff:10.9.9.9", addrs("10.9.9.9")},
	}
	for _, test := range tests {
		t.Run(test.network+" "+test.host, func(t *testing.T) {
			got, err := rig.client.Resolver().LookupNetIP(testContext(t), test.network, test.host)
			if diff := cmp.Diff(test.want, got, byValue); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
	t.Run("200 addresses come by TCP", func(t *testing.T) {
		got, err := rig.client.Resolver().LookupNetIP(testContext(t), "ip4", "big.example")
		if err != nil || len(got) != 200 || ns.tcp.Load() != 1 {
			t.Errorf("%d addresses, %d queries by TCP, %v", len(got), ns.tcp.Load(), err)
		}
	})
}

func TestResolverKeepsAnswers(t *testing.T) {
	ns := &nameServer{handle: zone(t, "kept.example. 60 A 10.1.1.1", "fleeting.example. 0 A 10.1.1.2")}
	rig := newDNSRig(t, prefixes(addrA4), ns)
	want := map[string]int32{"kept.example": 1, "fleeting.example": 3}
	for host, queries := range want {
		ns.udp.Store(0)
		for range 3 {
			if _, err := rig.client.LookupHost(host); err != nil {
				t.Fatal(err)
			}
		}
		if got := ns.udp.Load(); got != queries {
			t.Errorf("%s took %d queries, want %d", host, got, queries)
		}
	}
}

func TestResolverErrors(t *testing.T) {
	ns := &nameServer{}
	plain := zone(t, "four.example. 60 A 10.1.1.4", "loop.example. 60 CNAME loop.example.")
	ns.handle = func(q dns.Question, tcp bool) *dns.Msg {
		switch q.Name {
		case "broken.example.":
			return failure(dns.RcodeServerFailure)
		case "refused.example.":
			return failure(dns.RcodeRefused)
		case "lame.example.":
			return &dns.Msg{}
		case "silent.example.":
			return nil
		case "loop.example.":
			reply := &dns.Msg{MsgHdr: dns.MsgHdr{RecursionAvailable: true}}
			rr, _ := dns.NewRR("loop.example. 60 CNAME other.example.")
			reply.Answer = []dns.RR{rr}
			return reply
		case "other.example.":
			reply := &dns.Msg{MsgHdr: dns.MsgHdr{RecursionAvailable: true}}
			rr, _ := dns.NewRR("other.example. 60 CNAME loop.example.")
			reply.Answer = []dns.RR{rr}
			return reply
		}
		return plain(q, tcp)
	}
	rig := newDNSRig(t, both(), ns)
	server := rig.servers[0].String() + ":53"
	tests := []struct {
		network, host string
		want          net.DNSError
	}{
		{"ip", "none.example", net.DNSError{Err: "no such host", Name: "none.example", Server: server, IsNotFound: true}},
		{"ip6", "four.example", net.DNSError{Err: "the name exists, but has no IPv6 address", Name: "four.example", Server: server, IsNotFound: true}},
		{"ip", "broken.example", net.DNSError{Err: "the server says SERVFAIL", Name: "broken.example", Server: server, IsTemporary: true}},
		{"ip", "refused.example", net.DNSError{Err: "the server says REFUSED", Name: "refused.example", Server: server, IsTemporary: true}},
		{"ip", "lame.example", net.DNSError{Err: "the server neither knows the name nor asks others for us", Name: "lame.example", Server: server, IsTemporary: true}},
		{"ip", "silent.example", net.DNSError{Err: "no answer from the DNS server", Name: "silent.example", Server: server, IsTimeout: true, IsTemporary: true}},
		{"ip", "loop.example", net.DNSError{Err: "too many aliases", Name: "loop.example", IsTemporary: true}},
		{"ip", "not a name", net.DNSError{Err: "not a valid name", Name: "not a name", IsNotFound: true}},
		{"ip", "", net.DNSError{Err: "not a valid name", IsNotFound: true}},
		{"ip", "localhost", net.DNSError{Err: "there is no localhost in a tunnel: use the tunnel's own address", Name: "localhost", IsNotFound: true}},
	}
	for _, test := range tests {
		t.Run(test.host, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := rig.client.Resolver().LookupNetIP(ctx, test.network, test.host)
			got, ok := errors.AsType[*net.DNSError](err)
			if !ok {
				t.Fatalf("got %v, want a DNS error", err)
			}
			if diff := cmp.Diff(test.want, *got, cmpopts.IgnoreFields(net.DNSError{}, "UnwrapErr")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeadFirstServerCostsOnlyItsHeadStart(t *testing.T) {
	dead := &nameServer{handle: func(dns.Question, bool) *dns.Msg { return nil }}
	broken := &nameServer{handle: func(dns.Question, bool) *dns.Msg { return failure(dns.RcodeServerFailure) }}
	live := &nameServer{handle: zone(t, "host.example. 60 A 10.1.1.1")}
	rig := newDNSRig(t, prefixes(addrA4), dead, broken, live)
	ctx, cancel := context.WithTimeout(t.Context(), serverTimeout-time.Second)
	defer cancel()
	got, err := rig.client.LookupContextHost(ctx, "host.example")
	if diff := cmp.Diff([]string{"10.1.1.1"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if dead.udp.Load() == 0 || broken.udp.Load() == 0 {
		t.Errorf("the first server got %d queries, the second %d", dead.udp.Load(), broken.udp.Load())
	}
}

func TestUnreachableServerIsNamedWithItsPeer(t *testing.T) {
	a, b := peered(t)
	a.SetDNS([]netip.Addr{addrB4})
	b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := a.DialContext(ctx, "tcp", "host.example:80")
	if want := "no handshake with peer " + b.key.Public().Short(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant it to say %s", err, want)
	}
	a.SetDNS([]netip.Addr{netip.MustParseAddr("10.200.0.1")})
	if _, err := a.LookupHost("host.example"); !errors.Is(err, device.ErrNoPeer) {
		t.Errorf("got %v, want that no peer has the server's address", err)
	}
}

// One family's answer hangs: the other's is given after a moment.
func TestHangingFamilyDoesNotHoldUpTheOther(t *testing.T) {
	plain := zone(t, "host.example. 60 A 10.1.1.1")
	ns := &nameServer{handle: func(q dns.Question, tcp bool) *dns.Msg {
		if q.Qtype == dns.TypeAAAA {
			return nil
		}
		return plain(q, tcp)
	}}
	rig := newDNSRig(t, both(), ns)
	ctx, cancel := context.WithTimeout(t.Context(), serverTimeout-time.Second)
	defer cancel()
	got, err := rig.client.LookupContextHost(ctx, "host.example")
	if diff := cmp.Diff([]string{"10.1.1.1"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestLostQueryIsSentAgain(t *testing.T) {
	var lost atomic.Bool
	plain := zone(t, "host.example. 60 A 10.1.1.1")
	ns := &nameServer{handle: func(q dns.Question, tcp bool) *dns.Msg {
		if !lost.Swap(true) {
			return nil
		}
		return plain(q, tcp)
	}}
	rig := newDNSRig(t, prefixes(addrA4), ns)
	if got, err := rig.client.LookupHost("host.example"); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// A server from before EDNS answers FORMERR.
func TestServerWithoutEDNS(t *testing.T) {
	ns := &nameServer{handle: zone(t, "host.example. 60 A 10.1.1.1")}
	rig := newDNSRig(t, prefixes(addrA4), &nameServer{handle: func(dns.Question, bool) *dns.Msg { return nil }})
	old := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg)
		if q.IsEdns0() != nil {
			reply.SetRcodeFormatError(q)
		} else {
			reply = ns.handle(q.Question[0], false)
			reply.SetReply(q)
		}
		w.WriteMsg(reply)
	})
	serveOld(t, rig.far.Net, addrB4, old)
	rig.client.SetDNS([]netip.Addr{addrB4})
	if got, err := rig.client.LookupHost("host.example"); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func serveOld(t *testing.T, n *Net, addr netip.Addr, h dns.Handler) {
	t.Helper()
	pc, err := n.ListenPacket("udp", netip.AddrPortFrom(addr, 53).String())
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	s := &dns.Server{PacketConn: genericPacketConn{pc}, Handler: h, NotifyStartedFunc: func() { close(ready) }}
	var group sync.WaitGroup
	group.Go(func() { s.ActivateAndServe() })
	<-ready
	t.Cleanup(func() { s.Shutdown(); group.Wait() })
}

// Messages that answer another question, or somebody else's, are passed over.
func TestForgedAnswersAreIgnored(t *testing.T) {
	rig := newDNSRig(t, prefixes(addrA4), &nameServer{handle: func(dns.Question, bool) *dns.Msg { return nil }})
	good := zone(t, "host.example. 60 A 10.1.1.1")
	evil := zone(t, "host.example. 60 A 6.6.6.6")
	serveOld(t, rig.far.Net, addrB4, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		otherID := evil(q.Question[0], false)
		otherID.SetReply(q)
		otherID.Id++
		w.WriteMsg(otherID)
		otherName := evil(q.Question[0], false)
		otherName.SetReply(q)
		otherName.Question[0].Name = "evil.example."
		w.WriteMsg(otherName)
		w.Write([]byte("garbage"))
		reply := good(q.Question[0], false)
		reply.SetReply(q)
		w.WriteMsg(reply)
	}))
	rig.client.SetDNS([]netip.Addr{addrB4})
	got, err := rig.client.LookupHost("host.example")
	if diff := cmp.Diff([]string{"10.1.1.1"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestDialByNameTriesAddressesUntilOneAnswers(t *testing.T) {
	ns := &nameServer{handle: zone(t,
		"host.example. 60 A 10.99.0.2",
		"host.example. 60 AAAA fd99::77", // covered by no peer
		"slow.example. 60 A 10.5.0.1",    // silent
		"slow.example. 60 A 10.99.0.2",
	)}
	rig := newDNSRig(t, both(), ns)
	far := rig.far.as("far")
	far.AllowedIPs = append(far.AllowedIPs, netip.MustParsePrefix("10.5.0.0/16"))
	if _, err := rig.client.SetPeers(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	l, err := rig.far.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, host := range []string{"host.example", "slow.example"} {
		c, err := rig.client.DialContext(testContext(t), "tcp", host+":80")
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if got := c.RemoteAddr().String(); got != "10.99.0.2:80" {
			t.Errorf("%s: connected to %s", host, got)
		}
		c.Close()
	}
}

// Go's own resolver over ours: for libraries, and for other types of records.
func TestNetResolver(t *testing.T) {
	dead := &nameServer{handle: func(dns.Question, bool) *dns.Msg { return nil }}
	ns := &nameServer{handle: zone(t,
		"host.example. 60 A 10.1.1.1",
		`text.example. 60 TXT "hello"`,
		"_db._tcp.example. 60 SRV 1 1 5432 host.example.",
	)}
	rig := newDNSRig(t, prefixes(addrA4), dead, ns)
	r := rig.client.Resolver().NetResolver()
	txt, err := r.LookupTXT(testContext(t), "text.example.")
	if diff := cmp.Diff([]string{"hello"}, txt); diff != "" || err != nil {
		t.Error(err, diff)
	}
	_, srv, err := r.LookupSRV(testContext(t), "db", "tcp", "example.")
	if diff := cmp.Diff([]*net.SRV{{Target: "host.example.", Port: 5432, Priority: 1, Weight: 1}}, srv); diff != "" || err != nil {
		t.Error(err, diff)
	}
	ips, err := r.LookupNetIP(testContext(t), "ip4", "host.example.")
	if diff := cmp.Diff(addrs("10.1.1.1"), ips, byValue); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestPreferenceFollowsRFC6724(t *testing.T) {
	tests := map[string]struct {
		sources    []netip.Prefix
		have, want []netip.Addr
	}{
		"IPv6 first where we have a global address": {
			prefixes(addrs("10.0.0.1", "2001:db8::1")...),
			addrs("192.0.2.1", "2001:db8::2"), addrs("2001:db8::2", "192.0.2.1"),
		},
		"IPv4 first where our only IPv6 address is local to the site": {
			prefixes(addrs("10.0.0.1", "fd00::1")...),
			addrs("2001:db8::2", "192.0.2.1"), addrs("192.0.2.1", "2001:db8::2"),
		},
		"the site's own IPv6 prefix after IPv4, as the table has it": {
			prefixes(addrs("10.0.0.1", "fd00::1")...),
			addrs("fd00::2", "192.0.2.1"), addrs("192.0.2.1", "fd00::2"),
		},
		"what we have no address for comes last": {
			prefixes(addrs("10.0.0.1")...),
			addrs("2001:db8::2", "192.0.2.1"), addrs("192.0.2.1", "2001:db8::2"),
		},
		"round robin is kept": {
			prefixes(addrs("10.0.0.1")...),
			addrs("10.0.0.9", "192.0.2.2", "10.0.0.2"), addrs("10.0.0.9", "192.0.2.2", "10.0.0.2"),
		},
		"the nearer IPv6 address first": {
			prefixes(addrs("2001:db8:1::1")...),
			addrs("2001:db8:2::1", "2001:db8:1::2"), addrs("2001:db8:1::2", "2001:db8:2::1"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sortByPreference(test.have, test.sources), byValue); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	var c dnsCache
	for i := range 3 * maxCached {
		c.put(fmt.Sprint("host", i), dns.TypeA, addrs("10.0.0.1"), time.Minute)
	}
	if len(c.answers) > maxCached {
		t.Errorf("%d answers are kept", len(c.answers))
	}
}
