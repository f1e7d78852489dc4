package netstack

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	gvisor "gvisor.dev/gvisor/pkg/log"
)

func TestGVisorSpeaksToTheLogAlone(t *testing.T) {
	before := gvisor.Log().Emitter
	defer gvisor.SetTarget(before)
	var log bytes.Buffer
	LogGVisor(zerolog.New(&log))
	gvisor.Warningf("no room for %d\n", 5)
	if got, want := log.String(), `{"level":"debug","said":"no room for 5","as":"warning","message":"gvisor speaks"}`+"\n"; got != want {
		t.Errorf("log is %q, want %q", got, want)
	}
}
