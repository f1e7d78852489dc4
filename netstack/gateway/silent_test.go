package gateway

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/proxy"
)

// A tunnel that never comes up: its peer is at an address where nobody answers.
func TestTunnelThatDoesNotComeUpIsToldOfAndItsClientsToo(t *testing.T) {
	t.Parallel()
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0")
	mustDo(t, err)
	defer nobody.Close()
	conf := strings.Replace(plainConf, "192.0.2.1:51820", nobody.LocalAddr().String(), 1)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [0]\ndrain: 0\n", "wg0.conf": conf}, nil)
	asked := time.Now()
	dialer, err := proxy.SOCKS5("tcp", r.listen(SOCKS5, "tcp"), nil, proxy.Direct)
	mustDo(t, err)
	if _, err := dialer.Dial("tcp", "10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "TTL expired") {
		t.Errorf("the client is told %v", err)
	}
	if took := time.Since(asked); took > 25*time.Second {
		t.Errorf("the client is told after %s", took)
	}
	if n := r.log.count("peer does not answer handshakes, trying on"); n != 1 {
		t.Errorf("%d warnings of the peer, want 1", n)
	}
	if n := r.log.count("flows are refused"); n != 1 {
		t.Errorf("%d warnings of the refusal, want 1", n)
	}
	s := r.Status()
	const want = "no answer to handshakes at "
	if len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0].Reason, want) || !strings.HasPrefix(s.Tunnels[0].Peers[0].Problem, want) {
		t.Errorf("status tells %+v", s.Problems)
	}
}
