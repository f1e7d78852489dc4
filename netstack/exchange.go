package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	// ednsSize is the UDP payload we take: what passes nearly everywhere unfragmented
	// (DNS Flag Day 2020).
	ednsSize = 1232

	// serverTimeout is how long one server may take to answer, once there is a session with
	// its peer.
	serverTimeout = 5 * time.Second

	// serverDelay is the head start of one server over the next. A server that fails, or
	// says that it cannot answer, gives it up.
	serverDelay = 400 * time.Millisecond
)

// resendAfter is when a query that went by UDP is sent again, since datagrams get lost.
func resendAfter(try int) time.Duration { return time.Second << min(try, 2) }

// Exchange sends a query to the tunnel's DNS servers and returns the first good reply, with
// the query's ID. "No such name" is a good reply. The query is not changed.
func (r *Resolver) Exchange(ctx context.Context, query *dns.Msg) (*dns.Msg, error) {
	servers := r.config.Load().servers
	if len(servers) == 0 {
		return nil, errors.New("the tunnel has no DNS server")
	}
	reply, _, err := r.exchange(ctx, servers, query)
	if err != nil {
		return nil, err
	}
	reply.Id = query.Id
	return reply, nil
}

// exchange races the servers. When all fail it returns the first one's error.
func (r *Resolver) exchange(ctx context.Context, servers []netip.AddrPort, query *dns.Msg) (*dns.Msg, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	replies := make(chan serverReply, len(servers))
	started, ended := 0, 0
	defer func() {
		cancel()
		for range started - ended {
			<-replies
		}
	}()
	errs := make([]error, len(servers))
	next := time.NewTimer(0)
	defer next.Stop()
	for ended < len(servers) {
		select {
		case <-next.C:
			if started < len(servers) {
				i := started
				go func() { replies <- r.ask(ctx, i, servers[i], query) }()
				started++
				next.Reset(serverDelay)
			}
		case reply := <-replies:
			if ended++; reply.err == nil {
				return reply.msg, servers[reply.index].String(), nil
			}
			errs[reply.index] = reply.err
			next.Reset(0)
		}
	}
	return nil, servers[0].String(), errs[0]
}

type serverReply struct {
	index int
	msg   *dns.Msg
	err   error
}

// ask asks one server: by UDP with EDNS(0) (RFC 6891), without it where the server does not
// know it, and by TCP when the reply was cut.
func (r *Resolver) ask(ctx context.Context, index int, server netip.AddrPort, query *dns.Msg) serverReply {
	q := query.Copy()
	q.Id = dns.Id()
	if q.IsEdns0() == nil {
		q.SetEdns0(ednsSize, false)
	}
	reply, err := r.roundTrip(ctx, "udp", server, q)
	if err == nil && reply.Rcode == dns.RcodeFormatError && query.IsEdns0() == nil {
		q = query.Copy()
		q.Id = dns.Id()
		reply, err = r.roundTrip(ctx, "udp", server, q)
	}
	if err == nil && reply.Truncated {
		reply, err = r.roundTrip(ctx, "tcp", server, q)
	}
	if err == nil {
		err = usable(reply)
	}
	return serverReply{index, reply, err}
}

// roundTrip sends q and waits for the message that answers it. Others are passed over: a
// stranger's guess must not end the wait.
func (r *Resolver) roundTrip(ctx context.Context, network string, server netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	c, err := r.dial(ctx, network, server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	conn := &dns.Conn{Conn: c, UDPSize: dns.MaxMsgSize}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if network == "tcp" {
		return once(ctx, conn, q, true)
	}
	for try := 0; ; try++ {
		conn.SetReadDeadline(time.Now().Add(resendAfter(try)))
		reply, err := once(ctx, conn, q, false)
		if !isTimeout(err) || ctx.Err() != nil {
			return reply, err
		}
	}
}

// once sends q and reads until the answer to it. A message that cannot be read ends a
// stream, while a datagram may be anybody's.
func once(ctx context.Context, conn *dns.Conn, q *dns.Msg, stream bool) (*dns.Msg, error) {
	if err := conn.WriteMsg(q); err != nil {
		return nil, serverError(ctx, err)
	}
	for {
		reply, err := conn.ReadMsg()
		if reply != nil && answers(reply, q) && (err == nil || reply.Truncated) {
			return reply, nil
		}
		if _, broken := errors.AsType[net.Error](err); broken || stream && err != nil {
			return nil, serverError(ctx, err)
		}
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// answers reports whether reply belongs to q: same ID, same question (RFC 5452).
func answers(reply, q *dns.Msg) bool {
	if !reply.Response || reply.Id != q.Id {
		return false
	}
	if len(reply.Question) == 0 {
		return reply.Rcode == dns.RcodeFormatError // some servers do not repeat what they cannot read
	}
	got, want := reply.Question[0], q.Question[0]
	return got.Qtype == want.Qtype && got.Qclass == want.Qclass && strings.EqualFold(got.Name, want.Name)
}

// usable says whether a server's reply settles the question, or another should be asked.
func usable(reply *dns.Msg) error {
	switch {
	case reply.Rcode == dns.RcodeNameError:
		return nil
	case reply.Rcode != dns.RcodeSuccess:
		return fmt.Errorf("the server says %s", dns.RcodeToString[reply.Rcode])
	case len(reply.Answer) == 0 && !reply.Authoritative && !reply.RecursionAvailable && !hasSOA(reply):
		return errors.New("the server neither knows the name nor asks others for us")
	}
	return nil
}

// serverError names the end of the wait rather than the closed connection that it left.
func serverError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return contextError(ctx, "no answer from the DNS server")
	}
	return err
}
