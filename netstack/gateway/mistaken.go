package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/stillwire/stillwire/device"
)

// kindOfFile is what a file looks like by its first line that says anything.
type kindOfFile string

const (
	wgQuickFile   kindOfFile = "wg-quick file"
	wireproxyFile kindOfFile = "wireproxy file"
	yamlFileKind  kindOfFile = "YAML file of a gateway"
)

var (
	iniLine   = regexp.MustCompile(`^(\[\s*\w+\s*\]|\w+\s*=)`)
	proxyLine = regexp.MustCompile(`(?mi)^\s*(\[\s*(socks5|http|tcpclienttunnel|tcpservertunnel|udpproxytunnel|stdiotunnel|sni|resolve)\s*\]|wgconfig\s*=)`)
	yamlKey   = regexp.MustCompile(`^(tunnels|socks5|http|forward|publish|admin|drain|stateDir|uapiDir)\s*:(\s|$)`)
)

// looksLike returns "" for what cannot be told.
func looksLike(b []byte) kindOfFile {
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(b, []byte("\ufeff"))))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line == "---" || line[0] == '#' || line[0] == ';':
			continue
		case yamlKey.MatchString(line):
			return yamlFileKind
		case iniLine.MatchString(line) && proxyLine.Match(b):
			return wireproxyFile
		case iniLine.MatchString(line):
			return wgQuickFile
		}
		return ""
	}
	return ""
}

// asTunnel says that a file which a tunnel shall be made of is another kind of file.
func asTunnel(path string, b []byte) error {
	if kind := looksLike(b); kind == yamlFileKind {
		return &Error{Source: path, Reason: "is a " + string(kind) + ": name it with --config"}
	}
	return nil
}

// asConfig says that the YAML file is none.
func asConfig(path string, b []byte) error {
	if kind := looksLike(b); kind == wgQuickFile || kind == wireproxyFile {
		return &Error{Source: path, Reason: "is a " + string(kind) + ": name it without --config"}
	}
	return nil
}

// shownFaults is how many faults of one file are told: a file of another kind has one in each
// line.
const shownFaults = 10

// fewer leaves out what is too much of one file.
func fewer(errs []error) (out []error) {
	count := make(map[string]int)
	var order []string
	for _, err := range flat(errs) {
		file := fileOf(err)
		if count[file]++; count[file] == 1 {
			order = append(order, file)
		}
		if file == "" || count[file] <= shownFaults {
			out = append(out, err)
		}
	}
	for _, file := range order {
		if more := count[file] - shownFaults; file != "" && more > 0 {
			out = append(out, &Error{Source: file, Reason: fmt.Sprintf("has %d more faults", more)})
		}
	}
	return out
}

// flat takes joined errors apart.
func flat(errs []error) (out []error) {
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			out = append(out, flat(joined.Unwrap())...)
		} else {
			out = append(out, err)
		}
	}
	return out
}

// fileOf is the file in which the fault is, "" if it is in none.
func fileOf(err error) string {
	var (
		parse *device.ParseError
		own   *Error
	)
	switch {
	case errors.As(err, &parse):
		return parse.File
	case errors.As(err, &own) && !isFlag(own.Source):
		if i := strings.LastIndexByte(own.Source, ':'); i > 0 {
			if _, err := strconv.Atoi(own.Source[i+1:]); err == nil {
				return own.Source[:i]
			}
		}
		return own.Source
	}
	return ""
}
