package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack"
)

// Sources is where a Spec comes from: what the command line says, and the files that it
// names. The zero value of each field means that the flag was not given.
type Sources struct {
	Files   []string // wg-quick or wireproxy files: each is one tunnel
	Config  string   // a YAML file, see the package documentation
	SOCKS5  []string // [TUNNEL/][USER:PASSFILE@]LISTEN
	HTTP    []string // [TUNNEL/][USER:PASSFILE@]LISTEN
	Forward []string // [TUNNEL/]tcp|udp/LISTEN=TARGET
	Publish []string // [TUNNEL/]tcp|udp/[ADDRESS:]PORT=TARGET
	// Open allows listeners beyond loopback without a credential, from whatever source.
	Open     bool
	Admin    string         // LISTEN of /livez, /readyz, /status, /plan; before the YAML file's
	Drain    *time.Duration // before the YAML file's
	StateDir string         // before the YAML file's
	UAPIDir  string         // before the YAML file's

	// Given are tunnels that run already, by the name that services call them by. No file may
	// have one of these names.
	Given map[string]*netstack.Net

	// Names says what a flag was called where it was not given as one, as
	// {"--socks5": "$STILLWIRE_SOCKS5"}.
	Names map[string]string

	// LookupEnv reads the variables that wireproxy files may name as $NAME. nil: os.LookupEnv.
	LookupEnv func(string) (string, bool)

	instead map[string]string // of a plan: tunnel name to the file that stands for its own
}

// Load reads all files, and checks the whole. It changes and opens nothing. The error joins
// every fault that was found; each is an *Error or a *device.ParseError and says where it
// is and what to do.
func Load(s Sources) (Spec, error) {
	l := load(s, newReads())
	if err := errors.Join(l.errs...); err != nil {
		return Spec{}, err
	}
	return l.spec, nil
}

// load reads everything and reads on after a fault, so that all faults are told at once.
func load(s Sources, r *reads) *loader {
	l := &loader{Sources: s, reads: r}
	if l.LookupEnv == nil {
		l.LookupEnv = os.LookupEnv
	}
	l.spec.Drain = DefaultDrain
	l.given()
	l.files(s.Files)
	l.yaml(s.Config)
	l.flags()
	l.settings()
	if len(l.errs) == 0 { // else it would miss what could not be read
		l.validate()
	}
	l.errs = fewer(l.errs)
	return l
}

// loader gathers a Spec and every fault on the way.
type loader struct {
	Sources
	reads *reads
	spec  Spec
	errs  []error
}

func (l *loader) fail(err error) {
	if err != nil {
		l.errs = append(l.errs, err)
	}
}

// warnIfOpen warns of passwords that others can read, as device does of keys. Reading by a group
// is how Kubernetes gives a Secret to a process that is not root.
func (l *loader) warnIfOpen(at origin, path string) {
	mode := l.reads.modes[path]
	if runtime.GOOS == "windows" || !mode.IsRegular() || mode.Perm()&0o027 == 0 {
		return
	}
	key := at.field
	if at.source == "" {
		key = ""
	}
	l.warn(at.String(), key, path, fmt.Sprintf("can be changed or read by others, as it has mode %04o: run chmod 600 on it", mode.Perm()))
}

// name is what a flag was called.
func (l *loader) name(flag string) string { return cmp.Or(l.Names[flag], flag) }

// asked notes where a setting was asked for.
func (l *loader) asked(field, where string) {
	if l.spec.Where == nil {
		l.spec.Where = make(map[string]string)
	}
	l.spec.Where[field] = where
}

// files reads the tunnels that the command line names.
func (l *loader) files(paths []string) {
	for _, path := range paths {
		l.tunnelFile(Tunnel{Source: path}, path)
	}
}

// tunnelFile parses one tunnel's file, and the services that a wireproxy file asks for.
func (l *loader) tunnelFile(t Tunnel, path string) {
	if t.Name == "" {
		t.Name = tunnelName(path)
	}
	if t.Name == "" {
		l.fail(&Error{Source: t.Source, Reason: "has a name of which no tunnel name can be made: rename the file, or name the tunnel in a YAML file"})
		return
	}
	if other := l.spec.tunnel(t.Name); other != nil {
		l.fail(&Error{Source: t.Source, Field: "name", Value: t.Name, Reason: fmt.Sprintf("is the tunnel of %s already: give one of them another name in a YAML file", other.Source)})
		return
	}
	if other, ok := l.instead[t.Name]; ok {
		path = other
	}
	file, err := l.parse(path)
	if err != nil {
		l.fail(err)
		return
	}
	t.File = file
	l.spec.Tunnels = append(l.spec.Tunnels, t)
	l.spec.Ignored = append(l.spec.Ignored, file.Ignored...)
	l.spec.Warnings = append(l.spec.Warnings, file.Warnings...)
	l.sections(t.Name, file)
}

// parse reads a tunnel's file and remembers what was read for it.
func (l *loader) parse(path string) (*device.File, error) {
	f, b, err := l.reads.open(path)
	if err != nil {
		return nil, &Error{Source: path, Reason: "cannot be read: " + reasonOf(err), cause: err}
	}
	defer f.Close()
	if err := asTunnel(path, b); err != nil {
		return nil, err
	}
	return device.Parse(path, f, device.ParseOptions{Open: l.reads.Open, LookupEnv: l.LookupEnv})
}

// tunnelName makes a name of a file's: "/etc/wireguard/wg0.conf" is wg0. Characters that
// have no place in the name of an interface become dashes.
func tunnelName(path string) string {
	base := filepath.Base(path)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		if !inTunnelName(r) {
			return '-'
		}
		return r
	}, base)
	return strings.Trim(name, "-.")
}

func inTunnelName(r rune) bool {
	alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return alnum || strings.ContainsRune("_=+.-", r)
}

// settings lets the command line's settings win over the YAML file's.
func (l *loader) settings() {
	if l.Admin != "" {
		at := origin{field: l.name("--admin")}
		listen, err := parseListen("tcp", "", l.Admin)
		if err != nil {
			l.fail(at.refuse(l.Admin, err.Error()))
		}
		l.spec.Admin = Admin{Listen: listen, Source: at.String()}
	}
	l.spec.Admin.Open = l.spec.Admin.Open || l.Open
	if l.Drain != nil {
		l.asked("drain", l.name("--drain"))
		l.spec.Drain = *l.Drain
		if *l.Drain < 0 {
			l.fail(origin{field: l.name("--drain")}.refuse(l.Drain.String(), notTime))
		}
	}
	if l.StateDir != "" {
		l.asked("stateDir", l.name("--state-dir"))
		l.spec.StateDir = l.StateDir
	}
	if l.UAPIDir != "" {
		l.asked("uapiDir", l.name("--uapi"))
		l.spec.UAPIDir = l.UAPIDir
	}
}
