package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/stillwire/stillwire/device"
)

// Resolver turns names into addresses by asking DNS servers through the tunnel (RFC 1034,
// RFC 1035). It never asks the host's resolver, nor reads the host's files, unless
// Options.HostDNS says so. All methods may be called from any goroutine.
//
// A and AAAA are asked at once, of the families that the tunnel has addresses of. Several
// servers are raced, each with a head start over the next. Answers are kept for as long as
// their time to live says.
//
// Where a library wants a *net.Resolver, give it NetResolver.
type Resolver struct {
	dial    dialServer
	sources func() []netip.Prefix // the tunnel's addresses
	host    bool
	config  atomic.Pointer[dnsConfig]
	cache   dnsCache
}

// dialServer connects to a DNS server, by "udp" or "tcp".
type dialServer func(ctx context.Context, network string, server netip.AddrPort) (net.Conn, error)

// dnsConfig is one state of the settings; it is replaced, never changed.
type dnsConfig struct {
	servers []netip.AddrPort
	search  []string // with a trailing dot
}

const (
	dnsPort = 53

	// ndots is how many dots a name needs to be tried as it is before the search list:
	// resolv.conf's default.
	ndots = 1

	// familyGrace is how long an answer for one family waits for the other's. RFC 8305
	// says 50 ms for hosts beside their resolver; ours is behind a tunnel.
	familyGrace = 300 * time.Millisecond
)

func newResolver(dial dialServer, sources func() []netip.Prefix, host bool) *Resolver {
	r := &Resolver{dial: dial, sources: sources, host: host}
	r.set(nil, nil)
	return r
}

func (r *Resolver) set(servers []netip.Addr, search []string) {
	c := &dnsConfig{}
	for _, s := range servers {
		c.servers = append(c.servers, netip.AddrPortFrom(s.Unmap(), dnsPort))
	}
	for _, domain := range search {
		c.search = append(c.search, dns.Fqdn(strings.TrimPrefix(domain, ".")))
	}
	r.config.Store(c)
	r.cache.clear()
}

// LookupHost returns the addresses of host as text, the best to try first.
func (r *Resolver) LookupHost(ctx context.Context, host string) ([]string, error) {
	addrs, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return out, nil
}

// LookupNetIP returns the addresses of host, the best to try first (RFC 6724). The network
// is ip, ip4 or ip6. An IP address is its own answer. Errors are *net.DNSError: IsNotFound
// when the name does not exist or has no address of the kind asked for, IsTimeout and
// IsTemporary when servers did not answer or could not.
func (r *Resolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return literal(network, host, addr.Unmap())
	}
	if r.host {
		return new(net.Resolver).LookupNetIP(ctx, network, host)
	}
	if err := checkName(host); err != nil {
		return nil, err
	}
	c := r.config.Load()
	if len(c.servers) == 0 {
		return nil, &net.DNSError{Err: "the tunnel has no DNS server: set one (DNS = in the file), or dial an IP address", Name: host}
	}
	var err error
	for _, name := range c.candidates(host) {
		var addrs []netip.Addr
		if addrs, err = r.lookupName(ctx, c, network, name); err == nil {
			return sortByPreference(addrs, r.sources()), nil
		}
		if !isNotFound(err) {
			break // a later domain's answer might be another host's
		}
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		e.Name = host
	}
	return nil, err
}

func literal(network, host string, addr netip.Addr) ([]netip.Addr, error) {
	if network == "ip4" && !addr.Is4() || network == "ip6" && !addr.Is6() {
		return nil, notFound(host, "the address is not of the family asked for")
	}
	return []netip.Addr{addr}, nil
}

// checkName refuses what is no name, and what must never be asked of a DNS server
// (RFC 6761).
func checkName(host string) error {
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if _, ok := dns.IsDomainName(name); name == "" || !ok || strings.ContainsAny(name, " /:@\\%") {
		return notFound(host, "not a valid name")
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return notFound(host, "there is no localhost in a tunnel: use the tunnel's own address")
	}
	return nil
}

func notFound(host, reason string) error {
	return &net.DNSError{Err: reason, Name: host, IsNotFound: true}
}

func isNotFound(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && e.IsNotFound
}

// candidates are the full names that host may stand for, in the order of resolv.conf(5).
func (c *dnsConfig) candidates(host string) []string {
	if strings.HasSuffix(host, ".") {
		return []string{host}
	}
	names := make([]string, 0, len(c.search)+1)
	for _, domain := range c.search {
		if name := host + "." + domain; len(name) <= 254 {
			names = append(names, name)
		}
	}
	if strings.Count(host, ".") >= ndots {
		return append([]string{host + "."}, names...)
	}
	return append(names, host+".")
}

// families are the record types worth asking for: what the caller wants and the tunnel has
// addresses of, or all that the caller wants when it has none.
func (r *Resolver) families(network string) (types []uint16) {
	sources := r.sources()
	has := func(is4 bool) bool {
		return len(sources) == 0 || slices.ContainsFunc(sources, func(p netip.Prefix) bool { return p.Addr().Unmap().Is4() == is4 })
	}
	if network != "ip4" && (has(false) || network == "ip6") {
		types = append(types, dns.TypeAAAA)
	}
	if network != "ip6" && (has(true) || network == "ip4") {
		types = append(types, dns.TypeA)
	}
	return types
}

// lookupName asks for all families of one full name at once. An answer of one family waits
// only a moment for the others.
func (r *Resolver) lookupName(ctx context.Context, c *dnsConfig, network, name string) ([]netip.Addr, error) {
	types := r.families(network)
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dnsResult, len(types))
	for _, t := range types {
		go func() { results <- r.lookupType(ctx, c, name, t) }()
	}
	received := 0
	defer func() {
		cancel()
		for range len(types) - received {
			<-results
		}
	}()
	var addrs []netip.Addr
	var err error
	var grace <-chan time.Time
	for received < len(types) {
		select {
		case res := <-results:
			received++
			addrs, err = append(addrs, res.addrs...), worse(err, res.err)
			if len(res.addrs) > 0 && grace == nil {
				timer := time.NewTimer(familyGrace)
				defer timer.Stop()
				grace = timer.C
			}
		case <-grace:
			return addrs, nil
		}
	}
	if len(addrs) > 0 {
		return addrs, nil
	}
	return nil, err
}

type dnsResult struct {
	addrs []netip.Addr
	err   error
}

// worse keeps the error that says more: a failure rather than "not found", the first of two
// failures.
func worse(a, b error) error {
	if a == nil || b != nil && isNotFound(a) && !isNotFound(b) {
		return b
	}
	return a
}

// maxAliases bounds how often a name may be an alias of another.
const maxAliases = 8

// lookupType asks for one type, following aliases that the server did not follow itself.
func (r *Resolver) lookupType(ctx context.Context, c *dnsConfig, name string, t uint16) dnsResult {
	if addrs, ok := r.cache.get(name, t); ok {
		return dnsResult{addrs: addrs}
	}
	asked := name
	for range maxAliases {
		query := new(dns.Msg).SetQuestion(name, t)
		reply, server, err := r.exchange(ctx, c.servers, query)
		if err != nil {
			return dnsResult{err: dnsError(name, server, err)}
		}
		addrs, last, ttl := follow(reply, name, t)
		switch {
		case len(addrs) > 0:
			r.cache.put(asked, t, addrs, ttl)
			return dnsResult{addrs: addrs}
		case reply.Rcode == dns.RcodeNameError:
			return dnsResult{err: &net.DNSError{Err: "no such host", Name: name, Server: server, IsNotFound: true}}
		case last == name || hasSOA(reply):
			err := fmt.Sprintf("the name exists, but has no %s address", map[uint16]string{dns.TypeA: "IPv4", dns.TypeAAAA: "IPv6"}[t])
			return dnsResult{err: &net.DNSError{Err: err, Name: name, Server: server, IsNotFound: true}}
		}
		name = last
	}
	return dnsResult{err: &net.DNSError{Err: "too many aliases", Name: asked, IsTemporary: true}}
}

// follow walks the aliases in a reply from name on. It returns the addresses at the end, the
// last name of the chain, and the shortest time to live on the way.
func follow(reply *dns.Msg, name string, t uint16) (addrs []netip.Addr, last string, ttl time.Duration) {
	last, ttl = name, maxCacheTime
	for range maxAliases {
		next := ""
		for _, rr := range reply.Answer {
			h := rr.Header()
			if !strings.EqualFold(h.Name, last) {
				continue
			}
			addr, target := recordOf(rr)
			switch {
			case h.Rrtype == t && addr.IsValid():
				addrs = append(addrs, addr)
			case h.Rrtype == dns.TypeCNAME:
				next = target
			default:
				continue
			}
			ttl = min(ttl, time.Duration(h.Ttl)*time.Second)
		}
		if len(addrs) > 0 || next == "" {
			return addrs, last, ttl
		}
		last = next
	}
	return nil, last, ttl
}

func recordOf(rr dns.RR) (addr netip.Addr, target string) {
	switch rr := rr.(type) {
	case *dns.A:
		addr, _ = netip.AddrFromSlice(rr.A.To4())
	case *dns.AAAA:
		addr, _ = netip.AddrFromSlice(rr.AAAA.To16())
		addr = addr.Unmap()
	case *dns.CNAME:
		target = rr.Target
	}
	return addr, target
}

// hasSOA tells that a server vouches for there being nothing (RFC 2308, section 2.2).
func hasSOA(reply *dns.Msg) bool {
	return slices.ContainsFunc(reply.Ns, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeSOA })
}

// dnsError says why there was no answer at all.
func dnsError(name, server string, err error) error {
	e := &net.DNSError{Err: err.Error(), Name: name, Server: server, UnwrapErr: err}
	switch {
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		e.IsTimeout, e.IsTemporary = true, true
	case errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed), errors.Is(err, device.ErrNoPeer):
	default:
		e.IsTemporary = true
	}
	return e
}
