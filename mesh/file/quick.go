package file

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// peerLine is the line that begins a peer, and anyLine one that begins any section.
var (
	peerLine = regexp.MustCompile(`(?i)^\s*\[\s*peer\s*\]`)
	anyLine  = regexp.MustCompile(`^\s*\[`)
)

// readQuick reads the peers of a wg-quick file. Its [Interface] is of another machine or
// another device and means nothing here. A section that cannot be read is left out alone.
func (r *reader) readQuick(text []byte) {
	if bytes.IndexByte(text, 0) >= 0 {
		r.broken = true
		r.refuseFile(0, "", "", "is no text, so what it said before stays", "write a wg-quick file")
		return
	}
	sections := peerSections(text)
	f, err := r.parseQuick(bytes.Join(sections, nil))
	if err == nil {
		r.takeQuick(f.Config.Peers, f.Warnings)
		return
	}
	r.refuseQuick(err)
	var good [][]byte
	for i := range sections {
		if _, err := r.parseQuick(padded(sections, i)); err == nil {
			good = append(good, sections[i])
		} else {
			good = append(good, blank(sections[i]))
		}
	}
	if f, err := r.parseQuick(bytes.Join(good, nil)); err == nil {
		r.takeQuick(f.Config.Peers, f.Warnings)
	}
}

// peerSections parts the text where a [Peer] begins, and makes blank what is of no peer, so
// that lines keep their numbers. A comment above a [Peer] is of it.
func peerSections(text []byte) (sections [][]byte) {
	current, inPeer := []byte(nil), false
	for line := range bytes.Lines(text) {
		switch {
		case peerLine.Match(line):
			sections = append(sections, current)
			current, inPeer = nil, true
		case anyLine.Match(line):
			inPeer = false
		}
		comment := bytes.HasPrefix(bytes.TrimSpace(line), []byte("#"))
		if !inPeer && !comment {
			line = blank(line)
		}
		current = append(current, line...)
	}
	return append(sections, current)
}

// blank keeps the line ends alone.
func blank(text []byte) []byte { return bytes.Repeat([]byte("\n"), bytes.Count(text, []byte("\n"))) }

// padded is one section in its place.
func padded(sections [][]byte, i int) []byte {
	return append(blank(bytes.Join(sections[:i], nil)), sections[i]...)
}

func (r *reader) parseQuick(text []byte) (*device.File, error) {
	in := quickFile{bytes.NewReader(text), r.info}
	return device.Parse(filepath.Join(r.dir, filepath.Base(r.name)), in, device.ParseOptions{
		Open:      r.openKey,
		LookupEnv: func(string) (string, bool) { return "", false }, // nobody sees it change
	})
}

// openKey opens what PresharedKeyFile names.
func (r *reader) openKey(path string) (fs.File, error) {
	f, info, err := openRegular(path)
	if !slices.ContainsFunc(r.asides, func(a aside) bool { return a.path == path }) {
		r.asides = append(r.asides, aside{path, info})
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// quickFile is text with the mode of the file that it is of.
type quickFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f quickFile) Stat() (fs.FileInfo, error) {
	if f.info == nil {
		return nil, fs.ErrNotExist
	}
	return f.info, nil
}

func (quickFile) Close() error { return nil }

func (r *reader) refuseQuick(err error) {
	for _, err := range flatten(err) {
		e, ok := errors.AsType[*device.ParseError](err)
		if !ok {
			r.refuseFile(0, "", "", "cannot be read: "+err.Error(), "write a wg-quick file")
			continue
		}
		what, remedy, _ := strings.Cut(e.Reason, ": ")
		r.refuseFile(e.Line, e.Key, e.Value, what+", so this [Peer] is left out", cmp.Or(remedy, "mend the line"))
	}
}

func flatten(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

func (r *reader) takeQuick(peers []device.PeerConfig, warnings []device.Notice) {
	for _, w := range warnings {
		r.refuseFile(w.Line, w.Key, w.Value, w.Reason, "mend the line, or leave it if it is meant")
	}
	stem := slug(strings.TrimSuffix(filepath.Base(r.name), ".conf"))
	taken := make(map[string]bool)
	for i, p := range peers {
		name := stem
		if len(peers) > 1 {
			name = stem + "-" + cmp.Or(slug(p.Name), fmt.Sprint(i+1))
		}
		if taken[name] {
			name = fmt.Sprintf("%s-%d", name, i+1)
		}
		taken[name] = true
		r.peers = append(r.peers, mesh.Peer{
			Identity:            mesh.Identity{Name: name, Source: r.name + p.Source[strings.LastIndexByte(p.Source, ':'):]},
			PublicKey:           p.PublicKey,
			PresharedKey:        p.PresharedKey,
			Endpoint:            p.Endpoint,
			PersistentKeepalive: p.PersistentKeepalive,
			AllowedIPs:          p.AllowedIPs,
		})
	}
}

// notInName is what a name of an object cannot have.
var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// slug makes a name of an object of what people call a thing, "" if nothing is left.
func slug(s string) string {
	s = notInName.ReplaceAllString(strings.ToLower(s), "-")
	return strings.Trim(s[:min(len(s), 100)], "-")
}
