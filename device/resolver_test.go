package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// dnsServer answers on loopback, over UDP and TCP.
func dnsServer(t *testing.T, h dns.HandlerFunc) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: h}, {Listener: l, Handler: h}} {
		done := make(chan error, 1)
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { done <- s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { s.Shutdown(); <-done })
	}
	return pc.LocalAddr().String()
}

func record(t *testing.T, format string, args ...any) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return rr
}

func TestHostResolverGivesAllAddressesAndTheShortestTTL(t *testing.T) {
	for _, truncated := range []bool{false, true} {
		t.Run(fmt.Sprint("truncated ", truncated), func(t *testing.T) {
			server := dnsServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
				m := new(dns.Msg).SetReply(q)
				if _, udp := w.RemoteAddr().(*net.UDPAddr); udp && truncated {
					m.Truncated = true
					w.WriteMsg(m)
					return
				}
				name := q.Question[0].Name
				switch q.Question[0].Qtype {
				case dns.TypeA:
					m.Answer = append(m.Answer, record(t, "%s 300 IN CNAME real.example.", name), record(t, "real.example. 70 IN A 192.0.2.1"), record(t, "real.example. 90 IN A 192.0.2.2"))
				case dns.TypeAAAA:
					m.Answer = append(m.Answer, record(t, "%s 80 IN AAAA 2001:db8::1", name))
				}
				w.WriteMsg(m)
			})
			got, err := HostResolver{server: server}.Resolve(t.Context(), "b.example")
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(got.Addrs, netip.Addr.Compare)
			want := Answer{Addrs: addrs("192.0.2.1", "192.0.2.2", "2001:db8::1"), TTL: 70 * time.Second}
			if diff := cmp.Diff(want, got, compareSecrets()); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostResolverSaysThatANameIsNotThere(t *testing.T) {
	server := dnsServer(t, func(w dns.ResponseWriter, q *dns.Msg) {
		w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeNameError))
	})
	if _, err := (HostResolver{server: server}).Resolve(t.Context(), "gone.example."); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("error %v", err)
	}
}

func TestUsableAddresses(t *testing.T) {
	for _, tt := range []struct {
		host string
		give []netip.Addr
		want []netip.Addr
		err  string
	}{
		{"b.example", addrs("192.0.2.1", "::ffff:192.0.2.2", "2001:db8::1"), addrs("192.0.2.1", "192.0.2.2", "2001:db8::1"), ""},
		{"b.example", addrs("0.0.0.0", "192.0.2.1", "127.0.0.1"), addrs("192.0.2.1"), ""},
		{"b.example", addrs("0.0.0.0", "::", "127.0.0.1", "::1", "224.0.0.1", "ff02::1", "255.255.255.255"), nil, "holds no address that a peer could have"},
		{"b.localhost", addrs("127.0.0.1"), addrs("127.0.0.1"), ""},
		{"b.example", nil, nil, "the answer holds no address"},
	} {
		got, err := usable(Answer{Addrs: tt.give}, tt.host)
		if diff := cmp.Diff(tt.want, got, compareSecrets()); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", tt.host, tt.give, diff)
		}
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s %v: error %v, want %q", tt.host, tt.give, err, tt.err)
		}
	}
}
