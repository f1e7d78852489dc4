package device

import (
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device/devicetest"
)

// important returns the lines of the log from info up.
func (l *logBuffer) important() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !strings.Contains(line, `"level":"debug"`) && !strings.Contains(line, `"level":"trace"`) {
			out = append(out, line)
		}
	}
	return out
}

// toldOnce wants exactly one line with all of the words, and no more lines than want.
func toldOnce(t *testing.T, who string, lines []string, words ...string) {
	t.Helper()
	found := 0
	for _, line := range lines {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%s: %d lines say %q, want one:\n%s", who, found, words, strings.Join(lines, ""))
	}
}

const (
	sayUp      = `"message":"session with peer is up"`
	sayUnheard = `"message":"peer does not answer handshakes, trying on"`
	sayRefused = `"message":"handshakes are refused"`
	sayUntaken = `"message":"peer takes no answer to its handshakes"`
)

func TestSessionIsToldOfWhenItIsUp(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 25*time.Second)))
		exchange(t, a, b, 1, 2)
		pass(10 * time.Minute) // with handshakes every two
		toldOnce(t, "who called", a.log.important(), `"level":"info"`, sayUp, `"endpoint":"192.0.2.2:51820"`)
		toldOnce(t, "who was called", b.log.important(), `"level":"info"`, sayUp, `"endpoint":"192.0.2.1:51820"`)
		if n := len(a.log.important()) + len(b.log.important()); n != 2 {
			t.Errorf("%d lines for one session of each, want 2", n)
		}
	})
}

func TestSilentPeerIsWarnedOfOnceAndToldOfWhenItIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 25*time.Second)))
		pass(9 * time.Second)
		if lines := a.log.important(); len(lines) > 0 {
			t.Errorf("told after 9 s: %s", lines)
		}
		pass(7 * time.Second)
		toldOnce(t, "after 16 s", a.log.important(), `"level":"warn"`, sayUnheard, `"endpoint":"192.0.2.2:51820"`, `"tries":`, "UDP", "PublicKey", "PresharedKey")
		if p := a.peerState(t, b); !strings.HasPrefix(p.HandshakeProblem, "no answer to handshakes at 192.0.2.2:51820 since ") {
			t.Errorf("state tells %q", p.HandshakeProblem)
		}
		pass(10 * time.Minute)
		if lines := a.log.important(); len(lines) != 1 {
			t.Errorf("%d lines after 10 minutes, want 1:\n%s", len(lines), strings.Join(lines, ""))
		}
		b.apply(t, b.config(a.asPeer("", 0)))
		pass(time.Minute)
		toldOnce(t, "when it is back", a.log.important(), `"level":"info"`, sayUp)
		if p := a.peerState(t, b); p.HandshakeProblem != "" {
			t.Errorf("state tells still %q", p.HandshakeProblem)
		}
	})
}

func TestUnknownKeyIsToldOfOnBothSides(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config())
		a.apply(t, a.config(b.asPeer("192.0.2.2:51820", 25*time.Second)))
		pass(4 * time.Minute)
		toldOnce(t, "who calls", a.log.important(), sayUnheard)
		toldOnce(t, "who refuses", b.log.important(), `"level":"warn"`, sayRefused, `"endpoint":"192.0.2.1:51820"`, "no peer here has the key")
		pass(11 * time.Minute)
		if n := len(b.log.important()); n < 2 || n > 4 {
			t.Errorf("%d lines after 15 minutes, want one every five", n)
		}
	})
}

func TestHandshakesForAnotherKeyAreToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		peer := b.asPeer("192.0.2.2:51820", 25*time.Second)
		peer.PublicKey = testPeer(9)
		a.apply(t, a.config(peer))
		pass(time.Minute)
		toldOnce(t, "who calls", a.log.important(), sayUnheard)
		toldOnce(t, "who is called", b.log.important(), sayRefused, "another PublicKey for this side than "+b.key.Public().String())
	})
}

func TestDifferentPresharedKeysAreToldOfOnBothSides(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		psk, err := NewPresharedKey()
		if err != nil {
			t.Fatal(err)
		}
		peer := b.asPeer("192.0.2.2:51820", 25*time.Second)
		peer.PresharedKey = psk
		a.apply(t, a.config(peer))
		pass(time.Minute)
		toldOnce(t, "who calls", a.log.important(), sayUnheard, "have the same PresharedKey, and the PublicKey of the peer")
		toldOnce(t, "who is called", b.log.important(), `"level":"warn"`, sayUntaken, "same PresharedKey")
		for _, n := range []*node{a, b} {
			for _, line := range n.log.important() {
				if strings.Contains(line, sayUp) {
					t.Errorf("a session that does not stand is told of as up: %s", line)
				}
			}
		}
		peer.PresharedKey = PresharedKey{}
		a.apply(t, a.config(peer))
		pass(time.Minute)
		toldOnce(t, "who calls", a.log.important(), sayUp)
		toldOnce(t, "who is called", b.log.important(), sayUp)
	})
}

func TestPeerThatComesAndGoesIsNoTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, net *devicetest.Network) {
		a, b := newNode(t, net.Host("192.0.2.1"), "10.9.0.1", 1), newNode(t, net.Host("192.0.2.2"), "10.9.0.2", 2)
		b.apply(t, b.config(a.asPeer("", 0)))
		b.send(t, a, 1)
		pass(5 * time.Minute)
		if lines := b.log.important(); len(lines) > 0 {
			t.Errorf("told of a peer that may come when it likes:\n%s", strings.Join(lines, ""))
		}
	})
}
