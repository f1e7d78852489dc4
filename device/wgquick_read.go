package device

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// The words of wg(8) and wg-quick(8), as their manuals spell them, and our own two …File.
var (
	interfaceKeys = append([]string{
		"PrivateKey", "ListenPort", "FwMark", "Address", "DNS", "MTU", "PrivateKeyFile",
	}, vainKeys...)
	// vainKeys are known and not obeyed: wg-quick's, wireproxy's, the Android app's.
	vainKeys = []string{
		"Table", "PreUp", "PostUp", "PreDown", "PostDown", "SaveConfig",
		"CheckAlive", "CheckAliveInterval", "IncludedApplications", "ExcludedApplications",
	}
	peerKeys = []string{
		"PublicKey", "AllowedIPs", "Endpoint", "PersistentKeepalive", "PresharedKey", "PresharedKeyFile",
	}
	topKeys = []string{"WGConfig"}
	// proxySections are wireproxy's.
	proxySections = []string{
		"Socks5", "http", "TCPClientTunnel", "TCPServerTunnel", "UDPProxyTunnel", "STDIOTunnel", "Resolve", "SNI",
	}
	wgSections = []string{"Interface", "Peer"}
	// amneziaKeys belong to a protocol that no WireGuard peer understands.
	amneziaKeys = []string{
		"Jc", "Jmin", "Jmax", "S1", "S2", "S3", "S4", "H1", "H2", "H3", "H4",
		"I1", "I2", "I3", "I4", "I5", "J1", "J2", "J3", "Itime",
	}
)

// quickReader gathers what a file, and the one that it may include, say.
type quickReader struct {
	open  func(string) (fs.File, error)
	env   func(string) (string, bool)
	file  *File
	files []string // the names of the files, in the order read
	peers []*quickPeer
	given map[string]entry // where the keys of [Interface] stand that can stand once
	proxy bool             // the file is wireproxy's
	errs  bounded[*ParseError]

	ignored, warnings bounded[Notice]
}

// quickText is the place in one file that is being read.
type quickText struct {
	*quickReader
	name     string
	included bool       // by the first file
	where    string     // the section: one of wgSections or proxySections; "": on top of all
	skip     bool       // the section means nothing, nor do its lines
	peer     *quickPeer // of where == "Peer"
	above    string     // a peer's name in the comment lines just read
	secret   entry      // the first line with a key of WireGuard's or a password
}

func newQuickReader(name string, o ParseOptions) *quickReader {
	q := &quickReader{open: o.Open, env: o.LookupEnv, file: &File{Path: name, Where: make(map[string]string)}, given: make(map[string]entry)}
	if q.open == nil {
		q.open = func(path string) (fs.File, error) { return os.Open(path) }
	}
	if q.env == nil {
		q.env = os.LookupEnv
	}
	return q
}

// readText reads one file to its end. mode 0 is not looked at.
func (q *quickReader) readText(name string, r io.Reader, mode fs.FileMode) {
	q.files = append(q.files, name)
	b, err := readAtMost(r, maxFile)
	if err != nil {
		q.errs.add(&ParseError{File: name, Reason: "file cannot be read: " + cause(err)})
		return
	}
	if len(b) > maxFile {
		q.errs.add(&ParseError{File: name, Reason: fmt.Sprintf("file has more than the %d bytes that are read: this is no wg-quick file", maxFile)})
		return
	}
	lines, fault := splitLines(name, b)
	if fault != nil {
		q.errs.add(fault)
		return
	}
	t := &quickText{quickReader: q, name: name, included: len(q.files) > 1}
	for i, text := range lines {
		t.readLine(readLine(i+1, text))
	}
	t.settleName()
	if tooOpen(mode) && t.secret.key != "" {
		q.warn(t.secret, "", fmt.Sprintf("can be read by others, as the file has mode %04o: run chmod 600 on it", mode))
	}
}

// cause is an error without the path in it, which may be a key that somebody put in its place.
func cause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return hideKeys(err.Error())
}

func (t *quickText) readLine(l quickLine) {
	switch l.kind {
	case lineComment:
		t.above = cmp.Or(t.above, nameIn(l.comment))
		return
	case lineSection:
		t.startSection(l)
	case lineValue:
		t.settleName()
		t.readKey(l)
	case lineOther:
		t.refuseLine(l)
	}
	t.settleName()
}

// settleName gives the name in the comment lines just read to the peer they stand in. That of
// lines that touch the next [Peer] line from above has gone to the next peer before.
func (t *quickText) settleName() {
	if t.peer != nil {
		t.peer.Name = cmp.Or(t.peer.Name, t.above)
	}
	t.above = ""
}

func (t *quickText) startSection(l quickLine) {
	t.skip, t.peer = false, nil
	t.where = canonical(l.key, slices.Concat(wgSections, proxySections))
	switch {
	case t.where == "":
		t.skip = true
		t.refuseSection(l)
	case t.where == "Interface":
	case t.where == "Peer":
		t.peer = newQuickPeer(place{t.name, l.no}, cmp.Or(nameBeside(l.comment), t.above))
		t.peers = append(t.peers, t.peer)
	case t.included:
		t.skip = true
		t.ignore(entry{place: place{t.name, l.no}, key: "[" + t.where + "]"}, "", "is not read from a file that another one includes")
	default:
		t.proxy = true
		t.file.Sections = append(t.file.Sections, Section{Name: t.where, Line: l.no})
	}
}

// canonical returns the name that written is in any case, or "".
func canonical(written string, names []string) string {
	for _, name := range names {
		if strings.EqualFold(written, name) {
			return name
		}
	}
	return ""
}

// readKey reads a line "Key = value" of any section.
func (t *quickText) readKey(l quickLine) {
	e := entry{place: place{t.name, l.no}}
	switch {
	case t.skip:
	case t.where == "":
		t.readTop(l, e)
	case t.where == "Interface":
		if e.key = canonical(l.key, interfaceKeys); e.key == "" {
			t.refuseKey(l, interfaceKeys)
		} else if !t.ignored(l, e) && t.readValue(l, &e) {
			t.readInterface(e)
		}
	case t.where == "Peer":
		if e.key = canonical(l.key, peerKeys); e.key == "" {
			t.refuseKey(l, peerKeys)
		} else if t.readValue(l, &e) {
			t.readPeer(e)
		}
	default:
		t.readProxy(l, e)
	}
}

// readTop reads what stands before any section: wireproxy's WGConfig.
func (t *quickText) readTop(l quickLine, e entry) {
	if e.key = canonical(l.key, topKeys); e.key == "" {
		t.refuseTop(l)
		return
	}
	if !t.readValue(l, &e) {
		return
	}
	switch {
	case t.included:
		t.bad(e, e.value, "stands in a file that is included itself: name the other file where this one is named")
	case len(t.files) > 1:
		t.bad(e, e.value, "is the second one: one other file can be included")
	case e.value == "":
		t.bad(e, "", "is empty: name the file with [Interface] and [Peer]")
	default:
		t.include(e)
	}
}

func (t *quickText) include(e entry) {
	t.proxy = true
	path := t.resolved(e.value)
	f, err := t.open(path)
	if err != nil {
		t.bad(e, e.value, "cannot be read: "+cause(err))
		return
	}
	defer f.Close()
	t.readText(path, f, modeOf(f))
}

// resolved is a path that the file names, seen from here.
func (t *quickText) resolved(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(t.name), path)
}

// readProxy keeps a line of a section of wireproxy's for those who run its services.
func (t *quickText) readProxy(l quickLine, e entry) {
	if !word.MatchString(l.key) {
		t.refuseLine(l)
		return
	}
	e.key = l.key
	if !t.readValue(l, &e) {
		return
	}
	if isSecret(e.key) && e.env == "" && e.value != "" && t.secret.key == "" {
		t.secret = e
	}
	section := &t.file.Sections[len(t.file.Sections)-1]
	section.Keys = append(section.Keys, KeyValue{Key: l.key, Value: e.value, Line: l.no})
}

// readValue fills in the value: without comment and quotes, the environment asked.
func (t *quickText) readValue(l quickLine, e *entry) bool {
	var err error
	if t.isWgKey(e.key) {
		e.value = plainValue(l.value)
	} else {
		e.value, err = iniValue(l.value)
	}
	if err == nil {
		err = t.expand(e)
	}
	if err == nil && oneLine(e.value) != e.value {
		err = errors.New("holds control characters: write one line of text")
	}
	if err != nil {
		t.bad(*e, e.value, err.Error())
	}
	return err == nil
}

// isWgKey tells the keys whose value ends at the first "#" in any case. The others hold paths
// and passwords.
func (t *quickText) isWgKey(key string) bool {
	return (t.where == "Interface" || t.where == "Peer") && !strings.HasSuffix(key, "File")
}

var (
	envName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	envUpper = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,63}$`)
)

// expand takes "$NAME" from the environment, and the first dollar from "$$".
func (t *quickText) expand(e *entry) error {
	name, ok := strings.CutPrefix(e.value, "$")
	if !ok {
		return nil
	}
	if strings.HasPrefix(name, "$") {
		e.value = name
		return nil
	}
	if !envName.MatchString(name) {
		return errors.New("is no name of an environment variable: write $NAME, or $$ for a plain $")
	}
	value, found := t.env(name)
	value = strings.TrimSpace(value)
	name = shorten(hideKeys(name))
	e.env, e.value = "$"+name, value
	switch {
	case !found && isSecret(e.key) && !envUpper.MatchString(name): // a password that starts with a dollar
		return errors.New("names an environment variable that is not set: set it, or write $$ for a plain $")
	case !found:
		return fmt.Errorf("is not set in the environment: set %s, or write $$ for a plain $", name)
	case !utf8.ValidString(value):
		return errors.New("is not UTF-8 text in the environment")
	}
	return nil
}
