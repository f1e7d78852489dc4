//go:build linux

package interop

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/test/netns"
)

// The topology is that of tun_test.go, but near is not told where far is: it has heard that
// from far itself. Far sends and hears nothing back, while near ends and starts again:
//
//	near  ◄──────────────────────── far    session of before
//	near  ✗                         far    goes on sending into the dead session
//	near' ── handshake initiation ► far    where the state file says
//	near' ◄──────────────────────── far    new session
//
// On its own WireGuard finds out when 15 s have passed without an answer: the control.
func TestRestartedNodeSpeaksFirst(t *testing.T) {
	for _, tt := range []struct {
		name      string
		remembers bool
		end       func(*child)
		back      time.Duration // from the new process being up to the first packet, at most
	}{
		{"killed", true, (*child).kill, time.Second},
		{"closed", true, (*child).close, time.Second},
		{"control: killed, without a state directory", false, (*child).kill, 25 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newTunnel(t, outer4, func(p *tunnel) {
				p.nearConf.Peers[0].Endpoint = device.Endpoint{}
				if tt.remembers {
					p.nodeOptions.StateDir = t.TempDir()
				}
			})
			flow := p.flows(t, 500, p.directions()[1])[0]
			if tt.remembers {
				awaitSaved(t, p)
			}
			tt.end(p.node.child)
			p.node = startNode(t, p.near, p.node.key, p.nodeOptions)
			p.node.apply(p.nearConf)
			up := time.Now()
			r := restartReport(t, flow)
			back := r.GapAt.Add(r.Gap).Sub(up)
			t.Logf("one-way flow from upstream: nothing for %v, of which %v after the new process was up",
				r.Gap.Round(time.Millisecond), back.Round(time.Millisecond))
			if back > tt.back {
				t.Errorf("back %v after the new process was up", back)
			}
			if !tt.remembers && back < 5*time.Second {
				t.Errorf("the control was back after %v: this test shows nothing", back)
			}
			if lost := r.LostOutside(netns.Window{From: flow.UnderWaySince(r.GapAt), To: r.GapAt.Add(r.Gap)}); lost != nil {
				t.Errorf("lost %d outside of the gap", len(lost))
			}
		})
	}
}

// awaitSaved waits until the state file holds far's address.
func awaitSaved(t *testing.T, p *tunnel) {
	t.Helper()
	file := filepath.Join(p.nodeOptions.StateDir, p.nodeOptions.Name+".endpoints.json")
	await(t, 10*time.Second, func() error {
		b, err := os.ReadFile(file)
		if err == nil && !bytes.Contains(b, []byte(outer4.far.String())) {
			err = errors.New("the state file lacks far's address: " + string(b))
		}
		return err
	})
}

func restartReport(t *testing.T, flow *netns.Flow) netns.Report {
	t.Helper()
	if err := flow.AwaitArrival(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := flow.AwaitSent(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	return flow.Stop()
}
