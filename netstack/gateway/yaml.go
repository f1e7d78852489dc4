package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/stillwire/stillwire/netstack/proxy"
	"go.yaml.in/yaml/v3"
)

// maxYAML keeps a file of aliases to aliases from becoming work.
const maxYAML = 1 << 20

// yaml reads the YAML file, whose format the package documentation gives.
func (l *loader) yaml(path string) {
	if path == "" {
		return
	}
	y := &yamlFile{path: path, fail: l.fail}
	root, err := l.yamlRoot(path)
	if err != nil || root == nil {
		l.fail(err)
		return
	}
	dir := filepath.Dir(path)
	y.mapping(root, "",
		y.list("tunnels", func(n *yaml.Node) { l.yamlTunnel(y, dir, n) }),
		y.list("socks5", func(n *yaml.Node) { l.yamlProxy(y, dir, SOCKS5, n) }),
		y.list("http", func(n *yaml.Node) { l.yamlProxy(y, dir, HTTP, n) }),
		y.list("forward", func(n *yaml.Node) { l.yamlForward(y, dir, Forward, n) }),
		y.list("publish", func(n *yaml.Node) { l.yamlForward(y, dir, Publish, n) }),
		field{"admin", func(n *yaml.Node) { l.yamlAdmin(y, dir, n) }},
		l.yamlSetting(y, y.duration("drain", &l.spec.Drain)),
		l.yamlSetting(y, y.text("stateDir", func(s string) error { l.spec.StateDir = inDir(dir, s); return nil })),
		l.yamlSetting(y, y.text("uapiDir", func(s string) error { l.spec.UAPIDir = inDir(dir, s); return nil })),
	)
}

// yamlSetting notes where a setting is.
func (l *loader) yamlSetting(y *yamlFile, f field) field {
	return field{f.name, func(n *yaml.Node) { l.asked(f.name, y.at(n, "").source); f.read(n) }}
}

// yamlRoot returns the one document of the file, or nil when it is empty.
func (l *loader) yamlRoot(path string) (*yaml.Node, error) {
	b, err := l.reads.ReadFile(path)
	if err != nil {
		return nil, &Error{Source: path, Reason: "cannot be read: " + reasonOf(err), cause: err}
	}
	if len(b) > maxYAML {
		return nil, &Error{Source: path, Reason: fmt.Sprintf("is larger than %d KiB: this is no gateway configuration", maxYAML>>10)}
	}
	if err := asConfig(path, b); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	var doc, next yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(path, err)
	}
	if err := d.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, &Error{Source: path, Reason: "holds more than one document: remove the lines after the second ---"}
	}
	return doc.Content[0], nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// yamlError moves the line number of the library's error to where all others have it.
func yamlError(path string, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	m := yamlLine.FindStringSubmatch(first)
	if m[1] != "" {
		path += ":" + m[1]
	}
	return &Error{Source: path, Reason: "is not YAML: " + m[2]}
}

// inDir takes a relative path from the folder of the file that names it.
func inDir(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// yamlTunnel reads "- wg0.conf" or "- {name: office, file: wg0.conf}".
func (l *loader) yamlTunnel(y *yamlFile, dir string, n *yaml.Node) {
	t := Tunnel{Source: y.at(n, "").source}
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		l.tunnelFile(t, inDir(dir, n.Value))
		return
	}
	var file string
	y.mapping(n, "tunnels",
		y.text("name", func(s string) error { t.Name = s; return checkTunnelName(s) }),
		y.text("file", func(s string) error { file = inDir(dir, s); return nil }),
		y.boolean("hostDNS", &t.HostDNS),
	)
	switch {
	case file != "":
		l.tunnelFile(t, file)
	case n.Kind == yaml.MappingNode || isNull(n):
		y.refuse(n, "tunnels", "has no file: add file: PATH of a wg-quick file")
	}
}

func checkTunnelName(s string) error {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !inTunnelName(r) }) || strings.Trim(s, ".") == "" {
		return errors.New("is not a tunnel's name: use letters, digits and _=+.-")
	}
	return nil
}

// yamlProxy reads "- 127.0.0.1:1080" or the fields of a proxy.
func (l *loader) yamlProxy(y *yamlFile, dir string, kind Kind, n *yaml.Node) {
	at := y.at(n, string(kind))
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		l.short(at, dir, kind, n.Value)
		return
	}
	s := Service{Kind: kind, Source: at.source}
	y.mapping(n, string(kind),
		y.text("listen", func(text string) (err error) { s.Listen, err = parseListen("tcp", dir, text); return err }),
		y.text("tunnel", func(text string) error { s.Tunnel = text; return nil }),
		y.text("users", func(path string) error { return l.users(&s, inDir(dir, path)) }),
		y.boolean("open", &s.Open),
		y.idle(&s.Idle),
	)
	if s.Users.IsZero() && !s.strangers && names(n, "users") {
		s.strangers = true
		y.refuse(n, "users", "names no file: name one with USER:PASSWORD lines, or remove it to let everybody in")
	}
	l.complete(y, n, s)
}

// names reports whether a mapping has the key, with whatever value.
func names(n *yaml.Node, key string) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

// yamlForward reads "- tcp/LISTEN=TARGET" or the fields of a forward or a publish.
func (l *loader) yamlForward(y *yamlFile, dir string, kind Kind, n *yaml.Node) {
	at := y.at(n, string(kind))
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		l.short(at, dir, kind, n.Value)
		return
	}
	s := Service{Kind: kind, Source: at.source}
	fields := []field{
		y.text("listen", func(text string) error {
			network, rest, _ := strings.Cut(text, "/")
			if !isNetwork(network) {
				return errors.New("does not begin with tcp/ or udp/: write which of them it carries")
			}
			return s.setListen(network, dir, rest)
		}),
		y.text("target", func(text string) error { return s.setTarget(text) }),
		y.text("tunnel", func(text string) error { s.Tunnel = text; return nil }),
		y.idle(&s.Idle),
	}
	if kind == Forward { // a publish is open to the peers that reach it, by its nature
		fields = append(fields, y.boolean("open", &s.Open))
	}
	y.mapping(n, string(kind), fields...)
	l.complete(y, n, s)
}

// complete adds a service whose fields were read, unless one that it needs is missing.
func (l *loader) complete(y *yamlFile, n *yaml.Node, s Service) {
	before := len(l.errs)
	if s.Listen.IsZero() && !hasKey(n, "listen") {
		y.refuse(n, string(s.Kind), "has no listen: add where it listens")
	}
	if (s.Kind == Forward || s.Kind == Publish) && s.Target == "" && !hasKey(n, "target") {
		y.refuse(n, string(s.Kind), "has no target: add target: HOST:PORT")
	}
	if len(l.errs) == before && !s.Listen.IsZero() {
		l.spec.Services = append(l.spec.Services, s)
	}
}

func hasKey(n *yaml.Node, name string) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name && !isNull(follow(n.Content[i+1])) {
			return true
		}
	}
	return n.Kind != yaml.MappingNode && !isNull(n)
}

// yamlAdmin reads "admin: 127.0.0.1:9080" or its fields.
func (l *loader) yamlAdmin(y *yamlFile, dir string, n *yaml.Node) {
	a := Admin{Source: y.at(n, "").source}
	listen := y.text("listen", func(s string) (err error) { a.Listen, err = parseListen("tcp", dir, s); return err })
	if n.Kind == yaml.ScalarNode {
		listen.read(n)
	} else {
		y.mapping(n, "admin", listen, y.boolean("open", &a.Open))
		if n.Kind == yaml.MappingNode && !hasKey(n, "listen") {
			y.refuse(n, "admin", "has no listen: add where it listens")
		}
	}
	l.spec.Admin = a
}

// idle reads a time, or "off" for never.
func (y *yamlFile) idle(to *time.Duration) field {
	plain := y.duration("idle", to)
	return field{"idle", func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && (n.Value == "off" || n.Value == "never") {
			*to = -1
			return
		}
		plain.read(n)
	}}
}

// users admits those of a file of USER:PASSWORD lines.
func (l *loader) users(s *Service, path string) error {
	s.strangers = true
	b, err := l.reads.ReadFile(path)
	if err != nil {
		return &saidError{"cannot be read as a file of users: " + reasonOf(err), err}
	}
	users, err := proxy.ParseUsers(path, bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("is no file of users: %w", err)
	}
	s.admit(users, string(b))
	l.warnIfOpen(origin{s.Source, "users"}, path)
	return nil
}
