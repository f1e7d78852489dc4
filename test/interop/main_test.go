//go:build linux

package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stillwire/stillwire/test/netns"
)

// nodeEnv makes this program a node (see Node) instead of a test.
const nodeEnv = "STILLWIRE_INTEROP_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) != "" {
		os.Exit(serveNode())
	}
	// Most of the parallel tests wait for a timer of WireGuard's.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildUpstream = sync.OnceValues(func() (string, error) {
		return goBuild(filepath.Join(dir, "wireguard-go"), "golang.zx2c4.com/wireguard")
	})
	buildEnd = sync.OnceValues(func() (string, error) { return goBuild(filepath.Join(dir, "end"), "./end") })
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// Each returns the path of a program that it builds when first asked, without the race
// detector: upstream's own, and the one in the folder end.
var buildUpstream, buildEnd func() (string, error)

func goBuild(path, what string) (string, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, what)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", what, err, out)
	}
	return path, nil
}

// await looks every few milliseconds until a condition holds, and fails the test with what
// the condition last said when it does not within the time.
func await(t *testing.T, atMost time.Duration, condition func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(atMost)
	defer patience.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-patience.C:
			t.Fatalf("after %v still: %v", atMost, err)
		}
	}
}

const darkness = 5 * time.Second // more than this no change of the network may cost

// darkWindow is the time in which a change of the network may cost packets: those that were
// under way when it began, and those sent before each of the given flows had one arrive that
// was sent after it ended. It is the packets that tell how long that is, not a clock.
func darkWindow(t *testing.T, begun, ended time.Time, flows ...*netns.Flow) netns.Window {
	t.Helper()
	w := netns.Window{From: begun, To: ended}
	for _, f := range flows {
		w.From = earlier(w.From, f.UnderWaySince(begun))
		at := f.FirstArrival(ended)
		if at.IsZero() || at.Sub(begun) > darkness {
			t.Errorf("a change of the network was not over after %v", darkness)
		}
		if at.After(w.To) {
			w.To = at
		}
	}
	return w
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
