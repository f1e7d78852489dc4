package device

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/stillwire/stillwire/device/devicetest"
)

func TestPortInUseLeavesTheOldOneWorking(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		host := net.Host("192.0.2.1")
		a, b := newNode(t, host, "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		taken := newNode(t, host, "10.9.0.3", 3)
		occupied := taken.config()
		occupied.ListenPort = 40000
		taken.apply(t, occupied)
		b.apply(t, b.config(a.asPeer("", 0)))
		config := a.config(b.asPeer("192.0.2.2:51820", 0))
		a.apply(t, config)
		exchange(t, a, b, 1, 5)

		want, told := a.model.state(), a.log.count("Sending keepalive packet")
		bad := config
		bad.PrivateKey = testKey(80) // would end every session
		bad.ListenPort = 40000
		bad.Peers = append(bad.Peers, taken.asPeer("", 0))
		changes, err := a.Apply(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), "listen port 40000") {
			t.Errorf("error %v does not name the port", err)
		}
		if len(changes) > 0 {
			t.Errorf("changes %v", changes)
		}
		if diff := cmp.Diff(want, a.model.state(), sameState()); diff != "" {
			t.Errorf("model (-before +after):\n%s", diff)
		}
		pass(100 * time.Millisecond)
		if got := a.log.count("Sending keepalive packet") - told; got != 1 {
			t.Errorf("%d packets told the peer where the device is", got)
		}
		exchange(t, a, b, 6, 10)
		if changes := a.apply(t, config); len(changes) > 0 {
			t.Errorf("going back changes %v", changes)
		}
	})
}

func TestPortInUseAtTheFirstApplyCanBeMended(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		host := net.Host("192.0.2.1")
		first, second := newNode(t, host, "10.9.0.1", 1), newNode(t, host, "10.9.0.2", 2)
		first.apply(t, first.config())
		if _, err := second.Apply(t.Context(), second.config()); err == nil || !strings.Contains(err.Error(), "open UDP port 51820") {
			t.Errorf("error %v does not name the port", err)
		}
		for range 2 { // it is not given another one
			if _, err := second.Apply(t.Context(), second.config()); err == nil || !strings.Contains(err.Error(), "open UDP port 51820") {
				t.Errorf("error %v does not name the port", err)
			}
		}
		any := second.config()
		any.ListenPort = 0 // but when it asks for none
		second.apply(t, any)
		if s, err := second.State(); err != nil || s.ListenPort == 0 || s.ListenPort == 51820 {
			t.Errorf("port %d, %v", s.ListenPort, err)
		}
		first.Close()
		second.apply(t, second.config())
		if s, err := second.State(); err != nil || s.ListenPort != 51820 {
			t.Errorf("port %d, %v", s.ListenPort, err)
		}
	})
}

// strayBind opens another port than the one asked for.
type strayBind struct{ *devicetest.Bind }

func (b strayBind) Open(uint16) ([]conn.ReceiveFunc, uint16, error) { return b.Bind.Open(40001) }

func TestAnotherPortThanTheConfiguredOneIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) { o.Bind = strayBind{o.Bind.(*devicetest.Bind)} })
		_, err := a.Apply(t.Context(), a.config())
		if err == nil || !strings.Contains(err.Error(), "open UDP port 51820: got 40001") {
			t.Errorf("error %v", err)
		}
		if s, err := a.State(); err != nil || s.ListenPort != 40001 {
			t.Errorf("port %d, %v", s.ListenPort, err)
		}
	})
}

// What a file says that a restart finds must not keep a device from starting: here the
// interface of a link-local address is gone.
func TestSavedEndpointThatCannotBeUsedIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		dir := t.TempDir()
		a := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1, func(o *Options) {
			o.StateDir = dir
			o.Bind = &pickyBind{Bind: o.Bind.(*devicetest.Bind), refuse: "[fe80::1%eth7]"}
		})
		b, c := newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2), newNode(t, net.Host("192.0.2.3"), "10.9.0.3", 3)
		saved := savedEndpoint{Live: netip.MustParseAddrPort("[fe80::1%eth7]:51820")}
		a.saved[c.key.Public()] = saved
		saved.Declared = Endpoint{Host: "192.0.2.2", Port: 51820}
		a.saved[b.key.Public()] = saved
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0), c.asPeer("", 0)))
		exchange(t, a, b, 1, 5)
		if got := a.log.count("saved endpoint cannot be used"); got != 2 {
			t.Errorf("%d warnings of 2; log:\n%s", got, a.log.b.String())
		}
	})
}

// pickyBind refuses an endpoint, and so makes wireguard-go stop in the middle of a request.
type pickyBind struct {
	*devicetest.Bind
	refuse string
}

func (b *pickyBind) ParseEndpoint(s string) (conn.Endpoint, error) {
	if b.refuse != "" && strings.HasPrefix(s, b.refuse) {
		return nil, errors.New("refused by the test")
	}
	return b.Bind.ParseEndpoint(s)
}

func TestRefusedOperationIsReadBackAndMadeLater(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		picky := &pickyBind{Bind: net.Host("192.0.2.1").Bind(), refuse: "192.0.2.3"}
		a := newNode(t, net.Host("192.0.2.9"), "10.9.0.1", 1, func(o *Options) { o.Bind = picky })
		b, c, d := newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2), newNode(t, net.Host("192.0.2.3"), "10.9.0.3", 3), newNode(t, net.Host("192.0.2.4"), "10.9.0.4", 4)
		b.apply(t, b.config(a.asPeer("", 0)))
		c.apply(t, c.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 0), d.asPeer("", 0)))
		exchange(t, a, b, 1, 5)

		want := a.config(b.asPeer("192.0.2.2:51820", 0), c.asPeer("192.0.2.3:51820", 0))
		if _, err := a.Apply(t.Context(), want); err == nil {
			t.Fatal("no error")
		}
		seen, err := a.State()
		if err != nil {
			t.Fatal(err)
		}
		have := a.model.state()
		for i := range seen.Peers { // counters are no configuration
			s := &seen.Peers[i]
			have.Peers[i].Endpoint, have.Peers[i].LastHandshake, have.Peers[i].Handshakes = s.Endpoint, s.LastHandshake, s.Handshakes
			have.Peers[i].ReceiveBytes, have.Peers[i].TransmitBytes = s.ReceiveBytes, s.TransmitBytes
		}
		if diff := cmp.Diff(seen, have, sameState()); diff != "" {
			t.Errorf("after the error (-device +model):\n%s", diff)
		}
		picky.refuse = ""
		a.apply(t, want)
		exchange(t, a, c, 1, 5)
		exchange(t, a, b, 6, 10)
		if changes := a.apply(t, want); len(changes) > 0 {
			t.Errorf("a third Apply changes %v", changes)
		}
	})
}
