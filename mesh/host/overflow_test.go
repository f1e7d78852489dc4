//go:build linux

package host

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/test/netns"
)

func TestChangesThatWereThrownAwayMayBeAnything(t *testing.T) {
	ns := netns.NewLab(t).Namespace("node")
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var sockets []socket
	ns.Do(func() error { sockets = h.listen(); return nil })
	if len(sockets) != 2 {
		t.Fatalf("%d sockets", len(sockets))
	}
	route := sockets[0]
	err = control(route.file, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	if err != nil {
		t.Fatal(err)
	}
	// What a foreign program does is read past, up to where the buffer ends.
	var batch []string
	for i := range 100 {
		batch = append(batch, fmt.Sprintf("addr add 169.254.1.%d/32 dev lo scope link", i))
	}
	ns.IP(strings.Join(batch, "\n"))
	n := news{make(chan struct{}, 1), make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() { h.read(route, n) })
	<-n.ours
	<-n.around
	if h.changes.Load() == 0 || h.filters.Load() == 0 {
		t.Error("what was read before is still taken for good")
	}
	for _, s := range sockets {
		s.file.Close()
	}
	reader.Wait()
}

func TestForeignRoutesWakeNobody(t *testing.T) {
	ns := netns.NewLab(t).Namespace("node")
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var sockets []socket
	ns.Do(func() error { sockets = h.listen(); return nil })
	defer sockets[1].file.Close()
	ns.IP("route add 10.1.0.0/16 dev lo", "route add 10.2.0.0/16 dev lo table 7107", "route del 10.1.0.0/16 dev lo", "route add 10.3.0.0/16 dev lo proto 107 table 7107", "route add default dev lo")
	b := make([]byte, 4096)
	for _, want := range []string{"ours", "around"} {
		got, err := sockets[0].file.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		ours, around := sockets[0].sort(b[:got])
		if ours != (want == "ours") || around != (want == "around") {
			t.Errorf("want %s: ours %t, around %t, %x", want, ours, around, b[:got])
		}
	}
	sockets[0].file.Close()
}
