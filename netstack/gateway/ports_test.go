package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twoTunnels are wg0, to a far side, and b, each with a port of its own.
func twoTunnels(t *testing.T) (f *far, conf func(a, b uint16) map[string]string, free [2]uint16) {
	f = newFar(t)
	key := newKey(t)
	for i := range free {
		port, err := tryPort(t.Context(), 0)
		mustDo(t, err)
		free[i] = port
	}
	line := func(port uint16) string {
		if port == 0 {
			return ""
		}
		return fmt.Sprintf("ListenPort = %d\n", port)
	}
	conf = func(a, b uint16) map[string]string {
		return map[string]string{
			"wg0.conf": strings.Replace(f.conf(), "Address", line(a)+"Address", 1),
			"b.conf":   "[Interface]\nPrivateKey = " + key.Reveal() + "\nAddress = 10.8.0.2/24\n" + line(b),
		}
	}
	return f, conf, free
}

func (r *rig) ports() (out []uint16) {
	for _, t := range r.Status().Tunnels {
		out = append(out, t.ListenPort)
	}
	return out
}

func TestTunnelsSwapPorts(t *testing.T) {
	_, conf, free := twoTunnels(t)
	files := conf(free[0], free[1])
	files["gateway.yaml"] = "tunnels: [wg0.conf, b.conf]\nforward: [wg0/tcp/0=10.0.0.1:7]\n"
	r := startRig(t, files, nil)
	flow := startStream(dialTo(t, "tcp", r.listen(Forward, "tcp")))
	progress(t, map[string]*stream{"forward": flow})
	shakes := r.handshakes()
	for name, text := range conf(free[1], free[0]) {
		r.write(name, text)
	}
	var got []string
	for _, c := range r.reload() {
		got = append(got, fmt.Sprintf("%s %s %s %s", c.What, c.Field, c.Old, c.New))
	}
	want := []string{
		fmt.Sprintf("tunnel wg0 listen_port %d %d", free[0], free[1]),
		fmt.Sprintf("tunnel b listen_port %d %d", free[1], free[0]),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if got, want := r.ports(), []uint16{free[1], free[0]}; !cmp.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
	progress(t, map[string]*stream{"forward": flow})
	flow.end(t, "forward")
	if diff := cmp.Diff(shakes, r.handshakes()); diff != "" {
		t.Errorf("handshakes (-before +after):\n%s", diff)
	}
}

func TestSwapOfPortsIsUndone(t *testing.T) {
	_, conf, free := twoTunnels(t)
	files := conf(free[0], free[1])
	files["gateway.yaml"] = "tunnels: [wg0.conf, b.conf]\npublish: [wg0/tcp/8080=127.0.0.1:1]\n"
	r := startRig(t, files, nil)
	ln, err := r.now.Load().tunnels["wg0"].net.ListenTCPAddrPort(netip.MustParseAddrPort("[::]:8081"))
	mustDo(t, err)
	defer ln.Close()
	for name, text := range conf(free[1], free[0]) {
		r.write(name, text)
	}
	r.write("gateway.yaml", "tunnels: [wg0.conf, b.conf]\npublish: [wg0/tcp/8081=127.0.0.1:1]\n")
	if _, err := r.Reload(t.Context()); err == nil {
		t.Fatal("a port inside the tunnel that is taken was had")
	}
	if got, want := r.ports(), free[:]; !cmp.Equal(got, want) {
		t.Errorf("ports %v after a change that failed, want %v", got, want)
	}
}

func TestPortOfATunnelThatGoesIsFree(t *testing.T) {
	_, conf, free := twoTunnels(t)
	files := conf(free[0], free[1])
	files["gateway.yaml"] = "tunnels: [wg0.conf, b.conf]\n"
	r := startRig(t, files, nil)
	r.write("gateway.yaml", "tunnels: [wg0.conf]\n")
	r.write("wg0.conf", conf(free[1], 0)["wg0.conf"])
	r.reload()
	if got, want := r.ports(), free[1:]; !cmp.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
}

func TestPortThatIsTakenIsNamedWithItsLine(t *testing.T) {
	_, conf, free := twoTunnels(t)
	taken, err := net.ListenPacket("udp", ":0")
	mustDo(t, err)
	defer taken.Close()
	port := netip.MustParseAddrPort(taken.LocalAddr().String()).Port()
	want := fmt.Sprintf("wg0.conf:3: ListenPort: \"%d\" is taken by another program: stop it or choose another port", port)

	files := conf(port, 0)
	files["gateway.yaml"] = "tunnels: [wg0.conf]\n"
	err = newRig(t, files, nil).Run(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), want) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("start: %v, want %s", err, want)
	}

	files["wg0.conf"] = conf(free[0], 0)["wg0.conf"]
	r := startRig(t, files, nil)
	r.write("wg0.conf", conf(port, 0)["wg0.conf"])
	if _, err := r.Reload(t.Context()); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("reload: %v, want %s", err, want)
	}
	taken.Close()
	eventually(t, "the port is had once it is free", func() bool { return r.ports()[0] == port })
}

func TestPortThatIsAskedForNoMoreStays(t *testing.T) {
	_, conf, free := twoTunnels(t)
	files := conf(free[0], 0)
	files["gateway.yaml"] = "tunnels: [wg0.conf]\n"
	r := startRig(t, files, nil)
	r.write("wg0.conf", conf(0, 0)["wg0.conf"])
	want := []Change{{What: "tunnel wg0", Field: "listen_port", Old: fmt.Sprint(free[0]), New: "any", Cause: r.path("wg0.conf") + ", holds when the gateway starts anew, until then the port stays"}}
	p, err := r.Plan(t.Context())
	mustDo(t, err)
	if diff := cmp.Diff(want, p.Changes); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, r.reload()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if changes := r.reload(); len(changes) > 0 || r.ports()[0] != free[0] {
		t.Errorf("later: changes %v, ports %v", changes, r.ports())
	}
}
