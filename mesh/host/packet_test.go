//go:build linux

package host_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/stillwire/stillwire/test/netns"
)

// end is the test in the place of a WireGuard device: it reads what goes into the tunnel, and
// writes what comes out of it.
type end struct {
	t    *testing.T
	dev  tun.Device
	seen chan seen
	syns chan syn
}

// syn is the first packet of a TCP connection.
type syn struct {
	dst     netip.Addr
	segment int
}

// seen is the addresses of one packet.
type seen struct{ src, dst netip.Addr }

func (r *rig) open() *end {
	r.t.Helper()
	e := &end{t: r.t, seen: make(chan seen, 1000), syns: make(chan syn, 100)}
	err := r.node.Do(func() (err error) {
		e.dev, err = r.host.OpenTUN()
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(e.read)
	work.Go(func() {
		for range e.dev.Events() {
		}
	})
	r.t.Cleanup(func() {
		e.dev.Close()
		work.Wait()
	})
	return e
}

const room = 16 // before a packet, for the header of offload

func (e *end) read() {
	bufs, sizes := make([][]byte, e.dev.BatchSize()), make([]int, e.dev.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, room+65535)
	}
	for {
		n, err := e.dev.Read(bufs, sizes, room)
		if err != nil {
			return
		}
		for i := range n {
			if s, ok := synOf(bufs[i][room:][:sizes[i]]); ok {
				select {
				case e.syns <- s:
				default:
				}
			}
			if s, ok := addresses(bufs[i][room:][:sizes[i]]); ok {
				select {
				case e.seen <- s:
				default:
				}
			}
		}
	}
}

func addresses(packet []byte) (s seen, ok bool) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		s.src, _ = netip.AddrFromSlice(packet[12:16])
		s.dst, _ = netip.AddrFromSlice(packet[16:20])
	case len(packet) >= 40 && packet[0]>>4 == 6:
		s.src, _ = netip.AddrFromSlice(packet[8:24])
		s.dst, _ = netip.AddrFromSlice(packet[24:40])
	default:
		return s, false
	}
	return s, true
}

// expect waits for a packet into the tunnel.
func (e *end) expect(want seen) error { return e.expectWhile(func() {}, want) }

// expectWhile does something again and again until the packet comes.
func (e *end) expectWhile(do func(), want seen) error {
	patience := time.After(5 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do()
		case got := <-e.seen:
			if got == want {
				return nil
			}
		case <-patience:
			return fmt.Errorf("no packet from %s to %s came into the tunnel", want.src, want.dst)
		}
	}
}

// echo writes a ping out of the tunnel.
func (e *end) echo(src, dst netip.Addr) {
	e.t.Helper()
	packet := append(make([]byte, room), ping(src, dst)...)
	if _, err := e.dev.Write([][]byte{packet}, room); err != nil {
		e.t.Fatal(err)
	}
}

func ping(src, dst netip.Addr) []byte {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1, Data: []byte("stillwire")}}
	if dst.Is4() {
		body, _ := m.Marshal(nil)
		h := ipv4.Header{Version: 4, Len: 20, TotalLen: 20 + len(body), TTL: 64, Protocol: 1, Src: src.AsSlice(), Dst: dst.AsSlice()}
		head, _ := h.Marshal()
		binary.BigEndian.PutUint16(head[10:], checksum(head))
		return append(head, body...)
	}
	m.Type = ipv6.ICMPTypeEchoRequest
	body, _ := m.Marshal(icmp.IPv6PseudoHeader(src.AsSlice(), dst.AsSlice()))
	head := make([]byte, 40)
	head[0], head[6], head[7] = 0x60, 58, 64
	binary.BigEndian.PutUint16(head[4:], uint16(len(body)))
	copy(head[8:], src.AsSlice())
	copy(head[24:], dst.AsSlice())
	return append(head, body...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// dropped returns what the rules whose name begins so have counted.
func (r *rig) dropped(rule string) (packets int) {
	r.t.Helper()
	lines := regexp.MustCompile(`counter packets (\d+) .*comment "`+regexp.QuoteMeta(rule)).FindAllStringSubmatch(r.run("nft", "list", "table", "inet", "stillwire"), -1)
	if lines == nil {
		r.t.Fatalf("no rule counts %q", rule)
	}
	for _, l := range lines {
		n, _ := strconv.Atoi(l[1])
		packets += n
	}
	return packets
}

// awaitDrop waits until a rule has counted more than before.
func (r *rig) awaitDrop(rule string, before int) error {
	for range 100 {
		if r.dropped(rule) > before {
			return nil
		}
		<-time.After(10 * time.Millisecond)
	}
	return fmt.Errorf("the rule %q has dropped nothing", rule)
}

// send sends datagrams into the blue. What the kernel refuses is not sent.
func send(t *testing.T, from *netns.Namespace, dst netip.Addr, count int) (refused int) {
	t.Helper()
	err := from.Do(func() error {
		c, err := net.Dial("udp", netip.AddrPortFrom(dst, 9).String())
		if err != nil {
			refused = count
			return nil
		}
		defer c.Close()
		for range count {
			if _, err := c.Write([]byte("hello")); err != nil {
				refused++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return refused
}

func readFile(t *testing.T, in *netns.Namespace, name string) string {
	t.Helper()
	var b []byte
	err := in.Do(func() (err error) {
		b, err = os.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// flow is one UDP socket that sends to another, on one connection as the kernel tracks it.
type flow struct {
	in, out net.PacketConn
	to      net.Addr
}

func udpFlow(t *testing.T, from, to *netns.Namespace, dst netip.Addr) *flow {
	t.Helper()
	f := &flow{}
	for ns, c := range map[*netns.Namespace]*net.PacketConn{from: &f.out, to: &f.in} {
		err := ns.Do(func() (err error) {
			*c, err = net.ListenPacket("udp", ":0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*c).Close() })
	}
	f.to = net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, uint16(f.in.LocalAddr().(*net.UDPAddr).Port)))
	return f
}

// source sends a datagram and returns where it seems to come from.
func (f *flow) source() (netip.AddrPort, error) {
	if _, err := f.out.WriteTo([]byte("hello"), f.to); err != nil {
		return netip.AddrPort{}, err
	}
	f.in.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, at, err := f.in.ReadFrom(make([]byte, 100))
	if err != nil {
		return netip.AddrPort{}, err
	}
	a := at.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// synOf reads the segment size that a SYN offers: Linux puts that option first.
func synOf(packet []byte) (s syn, ok bool) {
	a, ok := addresses(packet)
	if !ok {
		return s, false
	}
	header, protocol := 20, packet[9]
	if a.dst.Is6() {
		header, protocol = 40, packet[6]
	}
	if protocol != 6 || len(packet) < header+24 || packet[header+13]&2 == 0 || packet[header+20] != 2 {
		return s, false
	}
	return syn{a.dst, int(binary.BigEndian.Uint16(packet[header+22:]))}, true
}

// segment waits for a SYN into the tunnel.
func (e *end) segment(dst netip.Addr) (int, error) {
	patience := time.After(5 * time.Second)
	for {
		select {
		case s := <-e.syns:
			if s.dst == dst {
				return s.segment, nil
			}
		case <-patience:
			return 0, fmt.Errorf("no SYN to %s came", dst)
		}
	}
}

// dial begins a TCP connection that nobody answers.
func dial(t *testing.T, from *netns.Namespace, dst netip.Addr) {
	t.Helper()
	from.Do(func() error {
		c, err := (&net.Dialer{Timeout: 50 * time.Millisecond}).Dial("tcp", netip.AddrPortFrom(dst, 9).String())
		if err == nil {
			c.Close()
		}
		return nil
	})
}
