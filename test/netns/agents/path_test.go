package agents

import (
	"strings"
	"testing"
	"time"
)

// A path whose handshakes pass and whose packets die is named, and another way is taken where
// there is one: here the tunnel moves from IPv4 to IPv6.
//
//	ada ── router (drops WireGuard's data, message type 4, in IPv4) ── ben
func TestAPathThatCarriesHandshakesAlone(t *testing.T) {
	w, ada, ben, _ := three(t)
	w.startAll(ranges...)
	w.connected(4)
	w.await("ada and ben hear each other", 20*time.Second, func() bool { return ada.hears("ben") && ben.hears("ada") })
	w.router.NFT("table ip black { chain f { type filter hook forward priority 0; udp dport 51820 @th,64,8 4 ip daddr { " + ada.addr.String() + ", " + ben.addr.String() + " } ip saddr { " + ada.addr.String() + ", " + ben.addr.String() + " } drop; }; }")
	cut := time.Now()
	named := func(m *machine) func() bool {
		return func() bool { return strings.Contains(m.agent.Output(), `"new":"NoReply"`) }
	}
	w.await("ada names the path", 30*time.Second, named(ada))
	t.Logf("named after %v", time.Since(cut).Round(time.Millisecond))
	w.await("ada and ben hear each other again", 60*time.Second, func() bool { return ada.hears("ben") && ben.hears("ada") })
	t.Logf("repaired after %v", time.Since(cut).Round(time.Millisecond))
	if err := ada.pod.AwaitPing(ben.pod4); err != nil {
		t.Error(err)
	}
	if strings.Contains(ada.agent.Output(), `"name":"cleo","old":"Up"`) {
		t.Error("a path that was well was held for another")
	}
}

// Of two endpoints the first is never answered from. Both ends move to the second at once, so that
// their handshakes cross: it is given the time that takes.
//
//	ada ── router (no IPv4 tunnels) ── cleo
func TestASecondEndpointIsGivenTheTimeOfAHandshake(t *testing.T) {
	w := newWorld(t)
	ada, cleo := w.machine("ada", "berlin"), w.machine("cleo", "rome")
	w.router.NFT("table inet cut { chain f { type filter hook forward priority -10; meta nfproto ipv4 udp dport 51820 drop; }; }")
	w.startAll(ranges...)
	begun := time.Now()
	w.await("cleo is reached by its second endpoint", 45*time.Second, func() bool {
		answered, err := ada.pod.Ping(cleo.pod4, 1, 100)
		return err == nil && answered == 1
	})
	t.Logf("reached by the second endpoint after %v", time.Since(begun).Round(time.Millisecond))
}
