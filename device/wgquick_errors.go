package device

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// maxRemarks bounds what a large file of another kind can make us say.
const maxRemarks = 200

// maxShown is how many characters of a value stand in an error or notice.
const maxShown = 80

// remark is the one line that errors and notices are.
func remark(file string, line int, key, value, reason string) string {
	var b strings.Builder
	b.WriteString(file)
	if line > 0 {
		fmt.Fprintf(&b, ":%d", line)
	}
	b.WriteString(": ")
	if key != "" {
		b.WriteString(key + ": ")
	}
	if value != "" {
		fmt.Fprintf(&b, "%q ", value)
	}
	b.WriteString(reason)
	return b.String()
}

// listedKeys is how many keys of a section are named to someone who used another one: those
// that are obeyed.
const listedKeys = 6

// place is a line of a file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// from names p to someone who reads a remark on here.
func (p place) from(here place) string {
	if p.file == here.file {
		return fmt.Sprintf("line %d", p.line)
	}
	return p.String()
}

// entry is a line "Key = value" of a known key.
type entry struct {
	place
	key   string // as in the manual
	value string // without comment and quotes, the environment asked
	env   string // the variable it came from, as written; "": it stands in the file
}

// shown is what may be told of a text that is the entry's value, or a part of it.
func (e entry) shown(text string) string {
	switch {
	case isSecret(e.key):
		return ""
	case e.env != "":
		return e.env
	case e.key == "PublicKey":
		if k, err := ParsePublicKey(text); err == nil {
			return k.String()
		}
	}
	return shorten(hideKeys(text))
}

func (e entry) notice(text, reason string) Notice {
	return Notice{File: e.file, Line: e.line, Key: e.key, Value: e.shown(text), Reason: reason}
}

// isSecret tells keys whose value is never shown, wireproxy's among them.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	return !strings.HasSuffix(key, "file") && secretWord.MatchString(key)
}

var secretWord = regexp.MustCompile(`pass|secret|private|preshared|token`)

// bounded keeps the first of a list that a file could make as long as it likes.
type bounded[T any] struct {
	first []T
	more  int // how many were not kept
}

func (b *bounded[T]) add(v T) {
	if len(b.first) == maxRemarks {
		b.more++
		return
	}
	b.first = append(b.first, v)
}

// bad notes that text, the entry's value or a part of it, cannot be obeyed.
func (q *quickReader) bad(e entry, text, reason string) {
	q.errs.add(&ParseError{File: e.file, Line: e.line, Key: e.key, Value: e.shown(text), Reason: reason})
}

func (q *quickReader) warn(e entry, text, reason string) { q.warnings.add(e.notice(text, reason)) }

func (q *quickReader) ignore(e entry, text, reason string) { q.ignored.add(e.notice(text, reason)) }

// joinedErrors are the errors in the order of the files and their lines.
func (q *quickReader) joinedErrors() error {
	slices.SortStableFunc(q.errs.first, func(a, b *ParseError) int {
		return cmp.Or(q.order(a.File)-q.order(b.File), a.Line-b.Line)
	})
	var all []error
	for _, err := range q.errs.first {
		all = append(all, err)
	}
	if n := q.errs.more; n > 0 {
		all = append(all, &ParseError{File: q.file.Path, Reason: fmt.Sprintf("file has %d more errors: is it a wg-quick file?", n)})
	}
	return errors.Join(all...)
}

func (q *quickReader) notices(b bounded[Notice]) []Notice {
	slices.SortStableFunc(b.first, func(a, b Notice) int {
		return cmp.Or(q.order(a.File)-q.order(b.File), a.Line-b.Line)
	})
	if b.more > 0 {
		b.first = append(b.first, Notice{File: q.file.Path, Reason: fmt.Sprintf("file has %d more lines of the kind", b.more)})
	}
	return b.first
}

func (q *quickReader) order(file string) int { return slices.Index(q.files, file) }

// keyLike is what a key in base64 or hexadecimal looks like: longer than any word people
// write, and than most labels of a DNS name.
var keyLike = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}=*`)

// hideKeys keeps out of sight what a person may have put in the wrong line.
func hideKeys(s string) string { return keyLike.ReplaceAllString(s, redacted) }

func shorten(s string) string {
	if utf8.RuneCountInString(s) <= maxShown {
		return s
	}
	return string([]rune(s)[:maxShown]) + "…"
}

// word is what a key or a section may look like to be shown. Anything else could be a key
// of the other kind, on a line of its own.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,31}$`)

// refuseLine is for what is neither a comment, a section nor a line with "=".
func (t *quickText) refuseLine(l quickLine) {
	if t.skip {
		return
	}
	e := entry{place: place{t.name, l.no}}
	if e.key = canonical(l.first, slices.Concat(interfaceKeys, peerKeys)); e.key != "" {
		t.bad(e, "", fmt.Sprintf("has no = after it: write %s = value", e.key))
		return
	}
	t.bad(e, "", "line is neither a [Section], a comment nor Key = value")
}

func (t *quickText) refuseSection(l quickLine) {
	e := entry{place: place{t.name, l.no}}
	if !word.MatchString(l.key) {
		t.bad(e, "", "line is not a known section: the sections are [Interface] and [Peer]")
		return
	}
	e.key = "[" + l.key + "]"
	if near := closest(l.key, slices.Concat(wgSections, proxySections)); near != "" {
		t.bad(e, "", "is not a known section: write ["+near+"]")
		return
	}
	t.bad(e, "", "is not a known section: the sections are [Interface] and [Peer]")
}

// refuseTop is for a key that stands before the first section.
func (t *quickText) refuseTop(l quickLine) {
	e := entry{place: place{t.name, l.no}}
	switch {
	case canonical(l.key, interfaceKeys) != "":
		e.key = canonical(l.key, interfaceKeys)
		t.bad(e, "", "stands before any section: write [Interface] above it")
	case canonical(l.key, peerKeys) != "":
		e.key = canonical(l.key, peerKeys)
		t.bad(e, "", "stands before any section: write [Peer] above it")
	case word.MatchString(l.key):
		e.key = l.key
		t.bad(e, "", "stands before any section: write [Interface] or [Peer] above it")
	default:
		t.refuseLine(l)
	}
}

// refuseKey is for a key that the section does not have. Its value may be a secret under a
// misspelt name, so it is not shown.
func (t *quickText) refuseKey(l quickLine, known []string) {
	if !word.MatchString(l.key) {
		t.refuseLine(l)
		return
	}
	e := entry{place: place{t.name, l.no}, key: l.key}
	for _, section := range []struct {
		name string
		keys []string
	}{{"Interface", interfaceKeys}, {"Peer", peerKeys}} {
		if key := canonical(l.key, section.keys); key != "" {
			e.key = key
			t.bad(e, "", fmt.Sprintf("belongs in [%s]: it stands in [%s] here", section.name, t.where))
			return
		}
	}
	if canonical(l.key, topKeys) != "" {
		t.bad(e, "", "belongs above the first section")
		return
	}
	if canonical(l.key, amneziaKeys) != "" {
		t.bad(e, "", "is AmneziaWG's, which no WireGuard peer understands: get a plain WireGuard file")
		return
	}
	if near := cmp.Or(closest(l.key, known), within(l.key, known)); near != "" {
		t.bad(e, "", fmt.Sprintf("is no key of [%s]: write %s", t.where, near))
		return
	}
	t.bad(e, "", fmt.Sprintf("is no key of [%s], which has %s: remove the line", t.where, strings.Join(known[:listedKeys], ", ")))
}

// closest returns the name that was most likely meant, or "".
func closest(written string, names []string) string {
	best, least := "", 1+max(1, len(written)/3)
	for _, name := range names {
		if d := levenshtein.ComputeDistance(strings.ToLower(written), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

// within returns the one name that written is a part of, as Keepalive is, or "".
func within(written string, names []string) (found string) {
	for _, name := range names {
		if len(written) < 4 || !strings.Contains(strings.ToLower(name), strings.ToLower(written)) {
			continue
		}
		if found != "" {
			return ""
		}
		found = name
	}
	return found
}
