package agents

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/stillwire/stillwire/test/netns"
)

// A node in netstack mode is a member like any other: its pods are none, but it is reached at
// its mesh address, and reaches others.
func TestANodeInNetstackModeIsAMember(t *testing.T) {
	w, ada, _, cleo := three(t)
	cleo.spec["podCIDRs"] = "[]"
	ada.start(ranges...)
	web := cleo.echo("127.0.0.1:0")
	cleo.start(append(ranges, "--mode", "netstack", "--socks5", "127.0.0.1:1080", "--publish", "tcp/8080="+web)...)
	w.await("ada and cleo hear each other", 30*time.Second, func() bool {
		return ada.hears("cleo") && cleo.hears("ada")
	})
	if links, err := run(cleo.Namespace, "ip", "link"); err != nil || strings.Contains(links, "stillwire0") {
		t.Error("the node in netstack mode has made an interface")
	}
	a := cleo.claimed()
	if answered, err := ada.pod.Ping(a, 3, 100); err != nil || answered != 3 {
		t.Errorf("its mesh address %s answers %d of 3, %v", a, answered, err)
	}
	if err := talk(ada.pod, netip.AddrPortFrom(a, 8080).String(), nil); err != nil {
		t.Errorf("what cleo publishes, from the pod of ada: %v", err)
	}
	target := echo(t, ada.pod, netip.AddrPortFrom(ada.pod4, 0).String())
	if err := talk(cleo.Namespace, target, func() (proxy.Dialer, error) { return proxy.SOCKS5("tcp", "127.0.0.1:1080", nil, proxy.Direct) }); err != nil {
		t.Errorf("the pod of ada, by cleo's proxy: %v", err)
	}
}

// echo serves one TCP connection after the other in a namespace, giving back what it gets, and
// returns where.
func echo(t *testing.T, n *netns.Namespace, address string) string {
	t.Helper()
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c) // the other end sees what went wrong
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func (m *machine) echo(address string) string { return echo(m.w.t, m.Namespace, address) }

// talk sends a word to an echo and expects it back. The dialer is made in the namespace; nil: the
// system's.
func talk(n *netns.Namespace, address string, dialer func() (proxy.Dialer, error)) error {
	return n.Do(func() error {
		var d proxy.Dialer = &net.Dialer{Timeout: 10 * time.Second}
		if dialer != nil {
			var err error
			if d, err = dialer(); err != nil {
				return err
			}
		}
		c, err := d.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		const word = "hello"
		got := make([]byte, len(word))
		if _, err = io.WriteString(c, word); err == nil {
			_, err = io.ReadFull(c, got)
		}
		if err == nil && string(got) != word {
			err = fmt.Errorf("got %q back", got)
		}
		return err
	})
}
