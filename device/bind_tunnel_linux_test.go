package device

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/stillwire/stillwire/device/devicetest"
)

// A host whose way out has lost its address, as for a moment when IPv6 addresses change: the
// new one may not be used yet. The routes are still there. All that Linux has left for a
// source is the tunnel's own address:
//
//	tun0 10.9.0.1 fd09::1 ─ host ─ wan 192.0.2.1 2001:db8::1 ── default route
func TestBindKeepsAwayFromItsOwnTunnel(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	// An address that is still tentative is no source, and is not what is tested here.
	for _, link := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/accept_dad", []byte("0"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tunnel, err := tun.CreateTUN("tun0", 1420)
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	ip(t, `
		link set lo up
		link set tun0 addrgenmode none
		link set tun0 up
		addr add 10.9.0.1/24 dev tun0
		addr add fd09::1/64 dev tun0 nodad
		link add wan arp off type veth peer name far
		link set wan addrgenmode none
		link set wan up
		link set far up
		addr add 192.0.2.1/24 dev wan
		addr add 2001:db8::1/64 dev wan
		route add default dev wan
		route add ::/0 dev wan
	`)
	left := listenTo(t, "wan")
	for _, tt := range []struct{ name, wan, inner, far, everything string }{
		{"IPv4", "192.0.2.1/24", "10.9.0.1", "198.51.100.1", "default"},
		{"IPv6", "2001:db8::1/64", "fd09::1", "2001:db8:1::1", "::/0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wan, inner, far := netip.MustParsePrefix(tt.wan), netip.MustParseAddr(tt.inner), netip.MustParseAddr(tt.far)
			inTunnel := inner.Next()
			b := NewBind(BindOptions{})
			b.SetTunnel(kernelIndex(tunnel))
			r, port := open(t, b, devicetestPort)

			silent := endpointOf(t, b, far, 7)
			heard := (&sourceKey{remote: far.As16(), local: wan.Addr().As16(), port: 7}).endpoint()
			for _, ep := range []*udpEndpoint{silent.(*udpEndpoint), heard} {
				if err := b.Send([][]byte{{1}}, ep); err != nil {
					t.Fatal(err)
				}
				if src := left.next(t); src != wan.Addr() {
					t.Errorf("left from %s, want %s", src, wan.Addr())
				}
			}
			if err := b.Send([][]byte{{1}}, endpointOf(t, b, inTunnel, 7)); err == nil {
				t.Error("sent into the tunnel")
			}

			ip(t, "addr del "+tt.wan+" dev wan")
			for _, ep := range []*udpEndpoint{silent.(*udpEndpoint), heard} {
				if err := b.Send([][]byte{{1}}, ep); err == nil {
					t.Errorf("left from %s", left.next(t))
				}
			}
			ip(t, "addr add "+tt.wan+" dev wan\nroute replace "+tt.everything+" dev wan") // IPv4 has lost the route too
			if err := b.Send([][]byte{{1}}, heard); err != nil {
				t.Errorf("with the address back: %v", err)
			} else if src := left.next(t); src != wan.Addr() {
				t.Errorf("left from %s, want %s", src, wan.Addr())
			}

			// What comes out of the tunnel is dropped, what comes by another way is not.
			packet := append(make([]byte, tunOffset), devicetest.Packet(inTunnel, inner, 1, 100)...)
			if _, err := tunnel.Write([][]byte{packet}, tunOffset); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "what came out of the tunnel is dropped", func() bool {
				s := b.Stats()
				return s.IPv4.FromTunnel+s.IPv6.FromTunnel == 1
			})
			other, err := net.Dial("udp", netip.AddrPortFrom(wan.Addr(), port).String())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if _, err := other.Write([]byte("beside")); err != nil {
				t.Fatal(err)
			}
			if got := r.next(t); got.payload != "beside" {
				t.Errorf("received %q from %s", got.payload, got.from)
			}
		})
	}
}

const (
	devicetestPort = 5001 // to which devicetest.Packet goes
	tunOffset      = 16   // room that a TUN wants in front of a packet
)

// wire is what leaves by an interface.
type wire struct{ fd int }

func listenTo(t *testing.T, link string) wire {
	t.Helper()
	i, err := net.InterfaceByName(link)
	if err != nil {
		t.Fatal(err)
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	return wire{fd}
}

// next returns the source of the next datagram that leaves.
func (w wire) next(t *testing.T) netip.Addr {
	t.Helper()
	b := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(w.fd, b, 0)
		if err != nil {
			t.Fatalf("nothing leaves: %v", err)
		}
		switch p := b[:n]; {
		case n > 20 && p[0]>>4 == 4 && p[9] == unix.IPPROTO_UDP:
			return netip.AddrFrom4([4]byte(p[12:]))
		case n > 40 && p[0]>>4 == 6 && p[6] == unix.IPPROTO_UDP:
			return netip.AddrFrom16([16]byte(p[8:]))
		}
	}
}
