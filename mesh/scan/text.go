package scan

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// maxShown is how many characters of a value stand in a problem.
const maxShown = 80

// name is what Kubernetes calls a DNS subdomain (RFC 1123).
var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// IsName reports whether an object can be called so. It is also a safe name of a file.
func IsName(s string) bool { return len(s) <= maxName && name.MatchString(s) }

// CheckName says what is wrong with the name of a node that shall publish its status, and what to
// do about it. Names of machines are often no names of objects: they have capitals.
func CheckName(name string) error {
	if IsName(name) {
		return nil
	}
	_, f := Name(name)
	remedy := f.Remedy
	if lower := strings.ToLower(name); IsName(lower) {
		remedy = "call the node " + lower
	}
	return fmt.Errorf("node name %q %s: %s", Shown(name), f.Detail, remedy)
}

// keyLike is what a key in base64 or hexadecimal looks like.
var keyLike = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}=*`)

// Shown is what may be told of a value, in one line.
func Shown(s string) string {
	s = OneLine(keyLike.ReplaceAllString(s, "(hidden)"))
	if utf8.RuneCountInString(s) > maxShown {
		s = string([]rune(s)[:maxShown]) + "…"
	}
	return s
}

// OneLine replaces what would break a line or a terminal.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, s)
}

// Meant names the word of the list that was most likely meant, else all of them.
func Meant(written string, words []string) string {
	best, least := "", 1+max(2, len(written)/3)
	if len(written) < 4 {
		least = 2
	}
	for _, w := range words {
		if d := levenshtein.ComputeDistance(strings.ToLower(written[:min(len(written), maxShown)]), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	if best != "" || len(words) == 1 {
		return "write " + cmp.Or(best, words[0])
	}
	return "write one of " + strings.Join(words, ", ")
}
