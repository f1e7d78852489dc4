package agents

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// At rest an agent writes nothing to its log, and uses next to no CPU: one of three nodes,
// for half a minute in which a pod pings another each second.
func TestAtRestAnAgentIsSilent(t *testing.T) {
	w, ada, ben, cleo := three(t)
	w.startAll(ranges...)
	w.connected(4)
	w.await("all hear each other", 30*time.Second, func() bool { return ada.hears("ben") && ben.hears("cleo") && cleo.hears("ada") })
	w.await("ada has a session with each", 30*time.Second, func() bool {
		return strings.Count(ada.agent.Output(), "session with peer is up") >= 2
	})
	said, used := ada.quietFor(3*time.Second), ada.cpu()
	start := time.Now()
	for time.Since(start) < 30*time.Second {
		if answered, err := ada.pod.Ping(ben.pod4, 1, 100); err != nil || answered != 1 {
			t.Fatalf("%d answers, %v", answered, err)
		}
		tick := time.NewTimer(time.Second)
		<-tick.C
	}
	spent, took := ada.cpu()-used, time.Since(start)
	t.Logf("at rest ada used %v of CPU in %v: %.2f%% of a core", spent, took.Round(time.Second), 100*spent.Seconds()/took.Seconds())
	if more := ada.agent.Output()[len(said):]; more != "" {
		t.Errorf("at rest ada wrote %s", more)
	}
}

// cpu is the time that the agent has used so far, in steps of 10 ms.
func (m *machine) cpu() time.Duration {
	m.w.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.agent.PID()))
	if err != nil {
		m.w.t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	var ticks int
	for _, f := range fields[12:14] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			m.w.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
