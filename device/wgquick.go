package device

import (
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
)

// File is what a wg-quick(8) file says, and what it says in vain.
type File struct {
	// Path is the name that was given to ParseFile or Parse.
	Path string
	// Config is ready for Device.Apply: what it holds passes Config.Normalized. Each peer's
	// Source is "file:line" of its [Peer] line.
	Config Config
	// Addresses are the interface's own, host bits kept, in the order of the file.
	Addresses []netip.Prefix
	// DNS are the servers to ask through the tunnel, DNSSearch the domains to try, lower case.
	DNS       []netip.Addr
	DNSSearch []string
	// MTU of the interface in bytes. 0 leaves it to us.
	MTU int
	// Ignored are the lines that are not obeyed, with the reason: Table, hooks, SaveConfig, …
	Ignored []Notice
	// Warnings are the lines that are obeyed in a way that may surprise.
	Warnings []Notice
	// Where says for each key of [Interface] that is given where its last line is, as
	// "wg0.conf:3".
	Where map[string]string
	// Sections are those that are not wg-quick's but wireproxy's, such as [Socks5], as they
	// stand, in the order of the file.
	Sections []Section
}

// Notice is a remark on one line of a file.
type Notice struct {
	File   string
	Line   int    // from 1; 0 is the file as a whole
	Key    string // as in the manual
	Value  string // never a secret, and "" where there could be one
	Reason string // continues the line: "is not run"
}

// String is one line: file:line: Key: "value" reason.
func (n Notice) String() string { return remark(n.File, n.Line, n.Key, n.Value, n.Reason) }

// Section is a section that is not wg-quick's.
type Section struct {
	Name string // in wireproxy's spelling: Socks5, http, TCPClientTunnel, …
	Line int    // of its [Name], from 1
	Keys []KeyValue
}

// KeyValue is one line of a Section. The value is without comment and quotes, and taken from
// the environment where the line says so. It does not print when it is a password.
type KeyValue struct {
	Key   string // as written, in any case
	Value string
	Line  int // from 1
}

// String is "Key = value", the value "(redacted)" when the key is a password's.
func (k KeyValue) String() string { return k.Key + " = " + k.printable() }

// Format writes String, whatever the verb.
func (k KeyValue) Format(f fmt.State, _ rune) { io.WriteString(f, k.String()) }

// MarshalText returns String.
func (k KeyValue) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

func (k KeyValue) printable() string {
	if isSecret(k.Key) {
		return redacted
	}
	return hideKeys(k.Value)
}

// ParseError is one thing in a file that cannot be read. Value never holds a secret: it is
// "" for the keys that have one, and for what is no known key at all.
type ParseError struct {
	File   string
	Line   int    // from 1; 0 is the file as a whole
	Key    string // as in the manual, or as written when there is no such key
	Value  string
	Reason string // what is wrong and what to do, continuing the line
}

// Error is one line: file:line: Key: "value" reason.
func (e *ParseError) Error() string { return remark(e.File, e.Line, e.Key, e.Value, e.Reason) }

// ParseOptions say where a file may get more text from. The zero value is right for a file
// whose author may read what the process may read. For text of anybody else set both to
// functions that refuse.
type ParseOptions struct {
	// Open opens what PrivateKeyFile, PresharedKeyFile and WGConfig name: a path, relative
	// ones joined to the folder of the file that names them. nil is os.Open.
	Open func(path string) (fs.File, error)
	// LookupEnv finds the variable that a value such as "$WG_KEY" names. nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
}

// ParseFile reads the wg-quick or wireproxy file at path, as Parse does. It warns when
// everybody on the machine may read the secrets in it.
func ParseFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(path, f, ParseOptions{})
}

// Parse reads wg-quick(8) text as wg(8) and wg-quick read it, and more: blank values, lines
// that start with ";", addresses parted by spaces alone. name stands in errors, and its folder
// is where relative paths start.
//
// Three things are read beyond the manual. PrivateKeyFile and PresharedKeyFile name a file
// that holds the key. A value "$NAME" is taken from the environment ("$$" is a plain "$"). And
// wireproxy's files: its sections, and a line "WGConfig = path" on top that stands for the
// [Interface] and [Peer] of another file.
//
// Hooks are never run; they and all else that is not obeyed are listed in File.Ignored. As
// with wg, of two lines that contradict each other the last one wins: a prefix given to two
// peers is the last one's, a second [Peer] with a known key changes the first and replaces its
// AllowedIPs, and the device's own key as a peer is left out. File.Warnings names both lines.
//
// An r that is an fs.File is warned about as ParseFile does, when it holds secrets that
// everybody may read.
//
// The error joins everything that is wrong with the file, each a *ParseError of one line.
func Parse(name string, r io.Reader, o ParseOptions) (*File, error) {
	q := newQuickReader(name, o)
	var mode fs.FileMode
	if f, ok := r.(fs.File); ok {
		mode = modeOf(f)
	}
	q.readText(name, r, mode)
	return q.finish()
}
