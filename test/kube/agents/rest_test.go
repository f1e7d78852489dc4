//go:build linux

package agents

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var requests = regexp.MustCompile(`(?m)^apiserver_request_total\{([^}]*)\} (\d+)$`)

// asked counts the requests to the API server that have to do with a mesh, by verb.
func (w *world) asked() map[string]int {
	w.t.Helper()
	out, _, err := w.cluster.Kubectl(w.t, "get", "--raw", "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	count := make(map[string]int)
	for _, m := range requests.FindAllStringSubmatch(out, -1) {
		labels := m[1]
		ours := strings.Contains(labels, `group="stillwire.dev"`) || strings.Contains(labels, `resource="events"`) || strings.Contains(labels, `resource="nodes"`)
		n, err := strconv.Atoi(m[2])
		if err != nil || !ours {
			continue
		}
		for _, verb := range []string{"LIST", "GET", "POST", "PUT", "PATCH", "APPLY", "DELETE"} {
			if strings.Contains(labels, `verb="`+verb+`"`) {
				count[verb] += n
			}
		}
	}
	return count
}

func writes(count map[string]int) int {
	return count["POST"] + count["PUT"] + count["PATCH"] + count["APPLY"] + count["DELETE"]
}

// Agents at rest write nothing and list nothing, though they compare everything each second; one that
// joins is no reason for the others to write.
func TestAtRestNothingIsWritten(t *testing.T) {
	w := newWorld(t)
	ada, ben, cleo := w.machine("ada"), w.machine("ben"), w.machine("cleo")
	for _, m := range []*machine{ada, ben} {
		m.start("--resync-period", "1s")
	}
	w.connected(ada, ben)
	before := w.settled()
	w.rest(10 * time.Second)
	after := w.asked()
	if writes(after) != writes(before) || after["LIST"] != before["LIST"] {
		t.Errorf("in 10 s at rest: %v, then %v", before, after)
	}
	cleo.start("--resync-period", "1s")
	w.connected(ada, ben, cleo)
	joined := w.settled()
	// The new one creates its MeshNode, writes its status once or a few times while it finds out what
	// it is, and its conditions; and what the others find is a problem that begins and ends.
	t.Logf("one that joins: %d writes", writes(joined)-writes(after))
	if n := writes(joined) - writes(after); n > 12 {
		t.Errorf("%d writes for one that joined: %v, then %v", n, after, joined)
	}
}

// settled waits until nothing was written for five seconds.
func (w *world) settled() (count map[string]int) {
	w.t.Helper()
	since := time.Now()
	count = w.asked()
	w.await(time.Minute, func() error {
		now := w.asked()
		if writes(now) != writes(count) {
			count, since = now, time.Now()
		}
		if time.Since(since) < 5*time.Second {
			return errors.New("the agents still write")
		}
		return nil
	})
	return count
}

// rest lets time pass in which nothing must happen.
func (w *world) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}
