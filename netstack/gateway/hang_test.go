package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// pipe makes a FIFO that nobody writes to.
func (r *rig) pipe(name string) string {
	r.t.Helper()
	mustDo(r.t, syscall.Mkfifo(r.path(name), 0o600))
	return r.path(name)
}

func TestPipeWhereAFileBelongsIsRefused(t *testing.T) {
	const want = "it is a pipe, a socket or a device, and no regular file"
	conf := strings.Replace(plainConf, "PrivateKey = "+keyA, "PrivateKeyFile = fifo", 1)
	for _, tc := range []struct {
		name    string
		files   map[string]string
		sources func(r *rig) Sources
	}{
		{"a tunnel's file", nil, func(r *rig) Sources { return Sources{Files: []string{r.path("fifo")}} }},
		{"the YAML file", nil, func(r *rig) Sources { return Sources{Config: r.path("fifo")} }},
		{"a file of a key", map[string]string{"wg0.conf": conf}, func(r *rig) Sources { return Sources{Files: []string{r.path("wg0.conf")}} }},
		{"a file of a password", map[string]string{"wg0.conf": plainConf}, func(r *rig) Sources {
			return Sources{Files: []string{r.path("wg0.conf")}, SOCKS5: []string{"me:" + r.path("fifo") + "@1080"}}
		}},
		{"a file of users", map[string]string{"wg0.conf": plainConf, "gateway.yaml": "tunnels: [wg0.conf]\nsocks5: [{listen: 1080, users: fifo}]\n"},
			func(r *rig) Sources { return Sources{Config: r.path("gateway.yaml")} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.files, nil)
			r.pipe("fifo")
			_, err := Load(tc.sources(r))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("refused with %v, want %q", err, want)
			}
		})
	}
}

func TestPlanOfAPipeIsRefusedAndTheGatewayGoesOn(t *testing.T) {
	f := newFar(t)
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\n", "wg0.conf": f.conf()}, nil)
	for _, path := range []string{r.pipe("fifo"), "/dev/stdin", "/dev/zero"} {
		p, err := r.Plan(t.Context(), path)
		if err != nil || len(p.Refused) != 1 {
			t.Errorf("plan of %s: %+v, %v", path, p, err)
		}
	}
	r.reload()
}

// What a shell hands over with <(…) is read.
func TestPipeThatWasHandedOverIsRead(t *testing.T) {
	in, out, err := os.Pipe()
	mustDo(t, err)
	defer in.Close()
	go func() { out.WriteString(plainConf); out.Close() }()
	b, err := newReads().ReadFile("/dev/fd/" + strconv.Itoa(int(in.Fd())))
	if err != nil || string(b) != plainConf {
		t.Errorf("read %q, %v", b, err)
	}
}

// hanging is a file system that hangs on demand: the lookup of a variable is a part of a load.
type hanging struct {
	on   atomic.Bool
	free chan struct{}
	once sync.Once
}

func (h *hanging) lookup(string) (string, bool) {
	if h.on.Load() {
		<-h.free
	}
	return "word", true
}

func (h *hanging) end() { h.once.Do(func() { close(h.free) }) }

func startHanging(t *testing.T) (*rig, *hanging) {
	f := newFar(t)
	h := &hanging{free: make(chan struct{})}
	t.Cleanup(h.end)
	conf := f.conf() + "\n[Socks5]\nBindAddress = 127.0.0.1:0\nUsername = me\nPassword = $WORD\n"
	r := startRig(t, map[string]string{"gateway.yaml": "tunnels: [wg0.conf]\ndrain: 0\n", "wg0.conf": conf}, func(o *Options) {
		o.Sources.LookupEnv, o.patience = h.lookup, 100*time.Millisecond
	})
	h.on.Store(true)
	return r, h
}

func TestLoadThatHangsIsGivenUp(t *testing.T) {
	r, h := startHanging(t)
	_, err := r.Reload(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot be read within 100ms: is it on a file system that hangs?") {
		t.Errorf("reload: %v", err)
	}
	for range 5 { // more than there are places for
		p, err := r.Plan(t.Context())
		if err != nil || len(p.Refused) != 1 || !strings.Contains(p.Refused[0], "a file system that hangs") {
			t.Errorf("plan: %+v, %v", p, err)
		}
	}
	h.end()
	eventually(t, "it is read again by itself", func() bool { return r.log.count("configuration is accepted again") == 1 })
}

func TestStopDoesNotWaitForALoadThatHangs(t *testing.T) {
	r, h := startHanging(t)
	r.patience = time.Hour
	asked, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := r.Reload(asked); !errors.Is(err, context.Canceled) {
		t.Errorf("reload whose asker has left: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- r.stop() }()
	select {
	case err := <-done:
		mustDo(t, err)
	case <-time.After(10 * time.Second):
		h.end()
		t.Fatal("the gateway does not stop")
	}
}

func TestSteadyTouchDoesNotStarveTheWatch(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/wg0.conf", "1")
	w := startWatch(t, dir+"/wg0.conf")
	touch := time.NewTicker(quiet / 4)
	defer touch.Stop()
	late := time.After(longest + 8*time.Second)
	for {
		select {
		case <-touch.C:
			writeFile(t, dir+"/wg0.conf", "2")
		case <-w.changed:
			return
		case <-late:
			t.Fatal("no change was seen while the file was written to all the time")
		}
	}
}

func TestReloadThatTheSystemRefusedIsTriedAgain(t *testing.T) {
	f := newFar(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	mustDo(t, err)
	yaml := "tunnels: [wg0.conf]\n"
	r := startRig(t, map[string]string{"gateway.yaml": yaml, "wg0.conf": f.conf()}, nil)
	r.write("gateway.yaml", yaml+"socks5: [\""+taken.Addr().String()+"\"]\n")
	if _, err := r.Reload(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("reload onto a port that is taken: %v", err)
	}
	eventually(t, "a second try", func() bool { return r.log.count("the system refuses the configuration still") > 0 })
	taken.Close()
	eventually(t, "it is accepted by itself", func() bool { return r.log.count("configuration is accepted again") == 1 })
	if n := r.log.count("configuration is rejected: what ran before runs on"); n != 1 {
		t.Errorf("%d lines for one rejection", n)
	}
	viaSOCKS(t, "tcp", r.listen(SOCKS5, "tcp"), "10.0.0.1:7")
}
