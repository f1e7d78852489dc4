//go:build linux

package agents

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A peer that is added in one step, and given nothing but what that step shows, reaches pods; the
// cluster says that it is up, and whose key it is stays with the peer.
func TestAPeerIsAddedInOneStep(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.machine("ada"), w.machine("ben")
	w.startAll()
	w.connected(ada, ben)
	admin, err := w.cluster.Kubeconfig(w.cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	conf, err := exec.Command(program, "peer", "add", "phone", "--kubeconfig", admin, "--service-cidr", "10.96.0.0/12").Output()
	if err != nil || !strings.Contains(string(conf), "PrivateKey = ") {
		t.Fatalf("peer add: %v: %s", err, conf)
	}
	key := strings.Fields(string(conf))[3]
	object, _, err := w.cluster.Kubectl(t, "get", "peer.stillwire.dev", "phone", "-o", "yaml")
	if err != nil || strings.Contains(object, key) {
		t.Fatalf("the Peer is %s, %v", object, err)
	}
	path := filepath.Join(t.TempDir(), "phone.conf")
	if err := os.WriteFile(path, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	phone := w.lab.Namespace("phone")
	w.lab.Connect(w.hub, phone)
	w.hub.IP("link set phone master br0")
	phone.AddAddrs("hub", "203.0.113.200/24")
	ada.serve("pod of ada")
	phone.Start(exec.Command(program, "gateway", path, "--forward", fmt.Sprintf("tcp/127.0.0.1:8000=%s:80", ada.podAddr())))
	w.await(30*time.Second, func() error {
		var c net.Conn
		if err := phone.Do(func() (err error) { c, err = net.Dial("tcp", "127.0.0.1:8000"); return err }); err != nil {
			return err
		}
		defer c.Close()
		if got, err := io.ReadAll(c); string(got) != "pod of ada" {
			return fmt.Errorf("read %q, %v", got, err)
		}
		return nil
	})
	w.await(30*time.Second, func() error {
		out, _, err := w.cluster.Kubectl(t, "get", "swpeer", "phone", "-o", `jsonpath={.status.conditions[?(@.type=="Up")].status}`)
		if err == nil && out != "True" {
			return fmt.Errorf("the phone is up: %q", out)
		}
		return err
	})
	again, err := exec.Command(program, "peer", "add", "phone", "--kubeconfig", admin).CombinedOutput()
	if err == nil || !strings.Contains(string(again), "there is a peer phone already") {
		t.Errorf("added twice: %v: %s", err, again)
	}
	shown, err := exec.Command(program, "peer", "config", "phone", "--kubeconfig", admin, "--service-cidr", "10.96.0.0/12").Output()
	_, want, _ := strings.Cut(string(conf), "\nAddress")
	if _, got, _ := strings.Cut(string(shown), "\nAddress"); err != nil || got != want {
		t.Errorf("peer config: %v\n%s\nwant, but for the key,\n%s", err, shown, conf)
	}
}

// serve has the pod say a word to all who connect to port 80.
func (m *machine) serve(word string) {
	t := m.w.t
	var ln net.Listener
	if err := m.pod.Do(func() (err error) { ln, err = net.Listen("tcp", ":80"); return err }); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, word)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
}
