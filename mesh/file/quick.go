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
	"strconv"
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
	if err != nil {
		r.refuseQuick(err)
		for i := range sections {
			if _, err := r.parseQuick(sections[i]); err != nil {
				sections[i] = blank(sections[i])
			}
		}
		if f, err = r.parseQuick(bytes.Join(sections, nil)); err != nil {
			return
		}
	}
	r.remark(f.Warnings)
	r.takeQuick(f.Config.Peers, peerLines(text))
}

// peerSections parts the text into a head and a part for each [Peer], and makes blank what is
// of no peer, so that lines keep their numbers. Comments above a [Peer] are of it: they may
// name it.
func peerSections(text []byte) [][]byte {
	sections, loose, inPeer := [][]byte{nil}, []byte(nil), false
	for line := range bytes.Lines(text) {
		if peerLine.Match(line) {
			sections, inPeer = append(sections, nil), true
		} else if anyLine.Match(line) {
			inPeer = false
		}
		here := &sections[len(sections)-1]
		switch trimmed := bytes.TrimSpace(line); {
		case len(trimmed) == 0 || trimmed[0] == '#':
			loose = append(loose, line...)
			continue
		case !inPeer:
			line = blank(line)
		}
		*here = append(append(*here, loose...), line...)
		loose = nil
	}
	sections[len(sections)-1] = append(sections[len(sections)-1], loose...)
	return sections
}

// peerLines are the lines at which a [Peer] stands.
func peerLines(text []byte) (lines []int) {
	n := 0
	for line := range bytes.Lines(text) {
		if n++; peerLine.Match(line) {
			lines = append(lines, n)
		}
	}
	return lines
}

// blank keeps the line ends alone.
func blank(text []byte) []byte { return bytes.Repeat([]byte("\n"), bytes.Count(text, []byte("\n"))) }

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
		if what == "cannot be read" {
			what, remedy = e.Reason, "put the key there, readable by this process"
		}
		r.refuseFile(e.Line, e.Key, e.Value, what+", so this [Peer] is left out", cmp.Or(remedy, "mend the line"))
	}
}

// remark tells of lines that are obeyed in a way that may surprise.
func (r *reader) remark(warnings []device.Notice) {
	for _, w := range warnings {
		what, remedy, found := strings.Cut(w.Reason, ": run ")
		if remedy = "run " + remedy; !found {
			remedy = "mend the line, or leave it if it is meant"
		}
		r.refuseFile(w.Line, w.Key, w.Value, what, remedy)
	}
}

func flatten(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// takeQuick names the peers: one alone has the name of the file, several have that and their
// own name, or else their number in the file.
func (r *reader) takeQuick(peers []device.PeerConfig, lines []int) {
	stem := cmp.Or(slug(strings.TrimSuffix(filepath.Base(r.name), ".conf")), "peer")
	taken := make(map[string]bool)
	for _, p := range peers {
		line := p.Source[strings.LastIndexByte(p.Source, ':')+1:]
		at := 1 + slices.IndexFunc(lines, func(n int) bool { return strconv.Itoa(n) == line })
		name := stem
		if len(lines) > 1 {
			name = stem + "-" + cmp.Or(slug(p.Name), strconv.Itoa(at))
		}
		if taken[name] {
			name = fmt.Sprintf("%s-%d", name, at)
		}
		taken[name] = true
		r.peers = append(r.peers, mesh.Peer{
			Identity:            mesh.Identity{Name: name, Source: r.name + ":" + line},
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
