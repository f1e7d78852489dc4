package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/proxy"
)

// stopping starts a gateway with a drain time, opens a flow, and begins to stop it.
func stopping(t *testing.T, drain string) (r *rig, flow net.Conn, ended <-chan error) {
	t.Helper()
	f := newFar(t)
	r = startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [0]\nforward: [tcp/0=10.0.0.1:7]\nadmin: unix:a.sock\ndrain: " + drain + "\n",
		"wg0.conf":     f.conf(),
	}, nil)
	flow = dialTo(t, "tcp", r.listen(Forward, "tcp"))
	exchange(t, flow, "hello")
	out := make(chan error, 1)
	go func() { out <- r.stop() }()
	eventually(t, "the gateway is stopping", func() bool { return r.Status().Draining })
	return r, flow, out
}

func TestStoppingGatewayLetsOldFlowsEndAndTakesNoNewOnes(t *testing.T) {
	r, flow, ended := stopping(t, "1m")
	c, err := NewClient("unix:" + r.path("a.sock"))
	mustDo(t, err)
	s, err := c.Status(t.Context())
	mustDo(t, err)
	if s.Ready || !s.Draining || s.NotReady[0] != "the gateway is stopping" {
		t.Errorf("status: ready %v, draining %v, %v", s.Ready, s.Draining, s.NotReady)
	}
	resp, err := c.http.Get(c.base + "/readyz")
	mustDo(t, err)
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || string(body) != "the gateway is stopping\n" {
		t.Errorf("readyz: %d %q", resp.StatusCode, body)
	}
	eventually(t, "listeners are closed", func() bool {
		_, err := socksClient(t, "tcp", r.listen(SOCKS5, "tcp"), (*proxy.Auth)(nil)).Dial("tcp", "10.0.0.1:7")
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	exchange(t, flow, "an old flow goes on")
	megabyteAfterHalfClose(t, flow)
	flow.Close()
	select {
	case err := <-ended:
		mustDo(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the gateway waits though no flow is left")
	}
	if r.Status().Ready {
		t.Error("ready after its end")
	}
	if _, err := os.Stat(r.path("a.sock")); !os.IsNotExist(err) {
		t.Errorf("the admin socket is left behind: %v", err)
	}
}

func TestFlowsThatOutliveTheDrainTimeAreReset(t *testing.T) {
	_, flow, ended := stopping(t, "300ms")
	mustDo(t, <-ended)
	flow.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := flow.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the flow ends with %v, want a reset", err)
	}
}

func TestAbortEndsTheDrainTime(t *testing.T) {
	r, flow, ended := stopping(t, "1h")
	exchange(t, flow, "still there")
	r.Abort()
	r.Abort()
	mustDo(t, <-ended)
}

func TestSilentDatagramsDoNotHoldUpTheEnd(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{
		"gateway.yaml": "tunnels: [wg0.conf]\nforward: [udp/0=10.0.0.1:7]\ndrain: 1h\n", "wg0.conf": f.conf(),
	}, nil)
	exchangePacket(t, dialTo(t, "udp", r.listen(Forward, "udp")), strings.Repeat("x", 100))
	mustDo(t, r.stop())
}

func TestReloadOfAStoppingGatewayIsRefused(t *testing.T) {
	r, _, ended := stopping(t, "1m")
	if _, err := r.Reload(t.Context()); err != ErrNotRunning {
		t.Errorf("reload: %v, want ErrNotRunning", err)
	}
	r.Abort()
	mustDo(t, <-ended)
}
