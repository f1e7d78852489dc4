package netstack

import (
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	gvisor "gvisor.dev/gvisor/pkg/log"
)

// LogGVisor has gVisor say what it says to log, at debug. Without it gVisor writes lines of its
// own to the standard error of the process, in a format of its own. There is one such log in a
// process, so this is for the program and not for a library: call it once, before Open.
func LogGVisor(log zerolog.Logger) { gvisor.SetTarget(gvisorEmitter{log}) }

// gvisorEmitter is where gVisor's lines end.
type gvisorEmitter struct{ log zerolog.Logger }

// Emit logs one line.
func (e gvisorEmitter) Emit(_ int, level gvisor.Level, _ time.Time, format string, args ...any) {
	e.log.Debug().Str("said", strings.TrimSpace(fmt.Sprintf(format, args...))).Str("as", strings.ToLower(level.String())).Msg("gvisor speaks")
}
