package device

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxFile holds a device full of peers that have a key and a prefix each.
	maxFile = 8 << 20
	// maxLine holds the twenty thousand prefixes of a large country.
	maxLine = 512 << 10
	// maxKeyFile is more than any key and the line end after it.
	maxKeyFile = 4 << 10
)

// quickLine is one line of a file, taken apart but not yet understood.
type quickLine struct {
	no      int // from 1
	kind    lineKind
	first   string // the first word
	key     string // what stands before "=", or within the brackets of lineSection
	value   string // of lineValue: everything after "=", with comments and quotes
	comment string // of lineComment and lineSection: what follows "#" or ";"
}

type lineKind int

const (
	lineBlank lineKind = iota
	lineComment
	lineSection
	lineValue
	lineOther
)

// splitLines returns the lines of a file, or one error when it is no text that a person
// would have written.
func splitLines(name string, b []byte) ([]string, *ParseError) {
	if bytes.HasPrefix(b, []byte{0xff, 0xfe}) || bytes.HasPrefix(b, []byte{0xfe, 0xff}) {
		return nil, &ParseError{File: name, Line: 1, Reason: "file is UTF-16 text: save it as UTF-8"}
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	end := "\n"
	if !bytes.Contains(b, []byte(end)) {
		end = "\r"
	}
	lines := strings.Split(string(b), end)
	for i, line := range lines {
		if reason := lineFault(line); reason != "" {
			return nil, &ParseError{File: name, Line: i + 1, Reason: reason}
		}
	}
	return lines, nil
}

func lineFault(line string) string {
	switch {
	case len(line) > maxLine:
		return fmt.Sprintf("line has %d bytes, more than the %d that are read: spread the values over several lines", len(line), maxLine)
	case strings.ContainsRune(line, 0):
		return "line holds a NUL byte: this is not a text file"
	case !utf8.ValidString(line):
		return "line is not UTF-8 text: save the file as UTF-8"
	}
	return ""
}

func readLine(no int, text string) quickLine {
	text = strings.TrimSpace(text)
	l := quickLine{no: no}
	if text == "" {
		return l
	}
	l.first = strings.Fields(text)[0]
	switch {
	case text[0] == '#' || text[0] == ';':
		l.kind, l.comment = lineComment, text[1:]
	case text[0] == '[':
		l.readSection(text)
	default:
		l.readValue(text)
	}
	return l
}

func (l *quickLine) readSection(text string) {
	if i := strings.IndexAny(text, "#;"); i >= 0 {
		text, l.comment = text[:i], text[i+1:]
	}
	l.kind = lineOther
	if name, ok := strings.CutSuffix(withoutSpace(text), "]"); ok {
		l.kind, l.key = lineSection, name[1:]
	}
}

func (l *quickLine) readValue(text string) {
	key, value, ok := strings.Cut(text, "=")
	if !ok || strings.Contains(key, "#") {
		l.kind = lineOther
		return
	}
	l.kind, l.key, l.value = lineValue, withoutSpace(key), strings.TrimSpace(value)
}

// withoutSpace drops all of it, as wg does before it looks at a line.
func withoutSpace(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, s)
}

// wgValue is the text of a value for which "#" always starts a comment, as wg has it.
func wgValue(text string) string {
	text, _, _ = strings.Cut(text, "#")
	return strings.TrimSpace(text)
}

// plainValue is wgValue for what can hold neither a ";" nor quotes of its own.
func plainValue(text string) string {
	text, _, _ = strings.Cut(wgValue(text), ";")
	return unquote(strings.TrimSpace(text))
}

// iniValue is the text of a value as wireproxy's INI reader takes it: "#" and ";" start a
// comment unless backquotes or three double quotes are around the value.
func iniValue(text string) (string, error) {
	for _, quote := range []string{`"""`, "`"} {
		inner, ok := strings.CutPrefix(text, quote)
		if !ok {
			continue
		}
		end := strings.LastIndex(inner, quote)
		if end < 0 {
			return "", fmt.Errorf("has no closing %s", quote)
		}
		return inner[:end], nil
	}
	if i := strings.IndexAny(text, "#;"); i >= 0 {
		text = text[:i]
	}
	return unquote(strings.TrimSpace(text)), nil
}

// quoteINI is the inverse of iniValue.
func quoteINI(s string) string {
	if got, err := iniValue(s); err == nil && got == s && !strings.HasSuffix(s, `\`) {
		return s
	}
	return "`" + s + "`"
}

func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	if strings.IndexByte(s[1:], s[0]) != len(s)-2 {
		return s
	}
	return s[1 : len(s)-1]
}

// readAtMost reads all of r, and one byte more than limit when there is too much.
func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, limit+1))
}

// modeOf returns 0 when nobody else can reach f, or nobody can tell.
func modeOf(f fs.File) fs.FileMode {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || runtime.GOOS == "windows" {
		return 0
	}
	return info.Mode().Perm()
}

// tooOpen reports whether more people than the owner and a group may read, or others than
// the owner may write. Reading by a group is how Kubernetes gives a Secret to a process that
// is not root.
func tooOpen(mode fs.FileMode) bool { return mode&0o027 != 0 }
