package gateway

import (
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Error is one thing that was asked for and cannot be done. A Load that refuses joins one
// Error, or one *device.ParseError, for each fault. None of the fields ever holds a secret.
type Error struct {
	Source string // where it was asked for: "gateway.yaml:12", "wg0.conf:20"; "" for a flag
	Field  string // the field or flag: "listen", "BindAddress", "--socks5", "$STILLWIRE_SOCKS5"
	Value  string // what was written
	Reason string // what is wrong: what to do
	cause  error  // what the system said, for programs
}

// Unwrap returns what the system said, if it was asked and refused, such as
// syscall.EADDRINUSE, and nil when what was written is wrong by itself.
func (e *Error) Unwrap() error { return e.cause }

// Error returns one line: where, field, value, what is wrong and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	for _, part := range []string{e.Source, e.Field} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	if e.Value != "" {
		b.WriteString(strconv.Quote(e.Value) + " ")
	}
	return b.String() + e.Reason
}

// isFlag tells what was asked for on the command line, "--socks5", or in the environment,
// "$STILLWIRE_SOCKS5", from what stands in a file.
func isFlag(source string) bool {
	return strings.HasPrefix(source, "--") || strings.HasPrefix(source, "$")
}

// originOf is where a service was asked for. One of a flag is named as it was written there:
// "--socks5 0.0.0.0:1080".
func originOf(source, name string) origin {
	if !isFlag(source) {
		return origin{source, name}
	}
	if _, place, ok := strings.Cut(name, " "); ok {
		source += " " + place
	}
	return origin{field: source}
}

// origin is where a value was written, so that an error or a change can name it.
type origin struct {
	source string // "gateway.yaml:12", or "" for the command line
	field  string // "listen", or "--socks5"
}

func (o origin) refuse(value, reason string) error {
	return &Error{Source: o.source, Field: o.field, Value: value, Reason: reason}
}

// refuseFor is refuse for what the system has refused.
func (o origin) refuseFor(value, reason string, cause error) error {
	return &Error{Source: o.source, Field: o.field, Value: value, Reason: reason, cause: cause}
}

// String names the origin as the cause of a change.
func (o origin) String() string {
	if o.source != "" {
		return o.source
	}
	return o.field
}

// closest returns the word of known that s is most likely meant to be, or "".
func closest(s string, known []string) string {
	best, bound := "", len(s)/3+2
	for _, word := range known {
		if len(word) > 3 && strings.HasPrefix(strings.ToLower(s), strings.ToLower(word)) {
			return word
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(s), strings.ToLower(word)); d < bound {
			best, bound = word, d
		}
	}
	return best
}

// meant renders closest as the end of a reason: "did you mean x?", or the whole list when
// nothing is near.
func meant(s string, known []string) string {
	if word := closest(s, known); word != "" {
		return "did you mean " + word + "?"
	}
	return "known are " + strings.Join(known, ", ")
}
