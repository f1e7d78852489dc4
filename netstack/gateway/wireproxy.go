package gateway

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/netstack/proxy"
)

// section reads one of wireproxy's sections into a service.
type section struct {
	*loader
	device.Section
	path   string
	tunnel string
}

// sectionKinds are the sections that are obeyed, with the keys that each may have.
var sectionKinds = []struct {
	name string
	keys []string
	read func(*section) (Service, bool)
}{
	{"Socks5", []string{"BindAddress", "Username", "Password"}, (*section).socks5},
	{"http", []string{"BindAddress", "Username", "Password"}, (*section).http},
	{"TCPClientTunnel", []string{"BindAddress", "Target"}, (*section).tcpClient},
	{"TCPServerTunnel", []string{"ListenPort", "Target"}, (*section).tcpServer},
	{"UDPProxyTunnel", []string{"BindAddress", "Target", "InactivityTimeout"}, (*section).udpProxy},
}

// sectionsIgnored are the sections that a gateway reads past, and why.
var sectionsIgnored = []struct{ name, reason string }{
	{"STDIOTunnel", "a gateway serves listeners and leaves standard input and output alone"},
	{"SNI", "a proxy that reads names from TLS is not offered: use [http] or [Socks5]"},
	{"Resolve", "both address families are tried, those first that the tunnel has an address of"},
}

// sections reads wireproxy's sections of a tunnel's file.
func (l *loader) sections(tunnel string, file *device.File) {
	for _, raw := range file.Sections {
		s := &section{loader: l, Section: raw, path: file.Path, tunnel: tunnel}
		s.add()
	}
}

func (s *section) add() {
	for _, kind := range sectionKinds {
		if strings.EqualFold(kind.name, s.Name) {
			if !s.keysKnown(kind.keys) {
				return
			}
			if service, ok := kind.read(s); ok {
				s.spec.Services = append(s.spec.Services, service)
			}
			return
		}
	}
	reason := "is no section that a gateway knows"
	for _, known := range sectionsIgnored {
		if strings.EqualFold(known.name, s.Name) {
			reason = known.reason
		}
	}
	s.notice(&s.spec.Ignored, s.Line, "["+s.Name+"]", "", reason)
}

func (s *section) notice(list *[]device.Notice, line int, key, value, reason string) {
	*list = append(*list, device.Notice{File: s.path, Line: line, Key: key, Value: value, Reason: reason})
}

func (s *section) at(line int, key string) origin {
	return origin{source: s.path + ":" + strconv.Itoa(line), field: key}
}

// keysKnown refuses keys that are unknown or given twice. No value is shown: it may be a
// password behind a misspelt key.
func (s *section) keysKnown(known []string) bool {
	ok := true
	seen := make(map[string]int)
	for _, kv := range s.Keys {
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, kv.Key) })
		if i < 0 && !s.encrypts(kv) {
			s.fail(s.at(kv.Line, kv.Key).refuse("", "is not a key of ["+s.Name+"]: "+meant(kv.Key, known)))
			ok = false
		}
		key := strings.ToLower(kv.Key)
		if line, twice := seen[key]; twice {
			s.fail(s.at(kv.Line, kv.Key).refuse("", fmt.Sprintf("is given in line %d already: keep one of them", line)))
			ok = false
		}
		seen[key] = kv.Line
	}
	return ok
}

// encrypts refuses the keys by which wireproxy's HTTP proxy speaks TLS: to listen without
// it where it was asked for would send passwords in clear text.
func (s *section) encrypts(kv device.KeyValue) bool {
	tls := strings.EqualFold(kv.Key, "CertFile") || strings.EqualFold(kv.Key, "KeyFile")
	if !tls || !strings.EqualFold(s.Name, "http") {
		return false
	}
	s.fail(s.at(kv.Line, kv.Key).refuse(kv.Value, "asks for a proxy over TLS, which is not offered: remove it, and listen on loopback or put a TLS proxy in front"))
	return true
}

// value returns what a key says, and "" with its line when it is missing or blank.
func (s *section) value(key string) (string, int) {
	for _, kv := range s.Keys {
		if strings.EqualFold(kv.Key, key) {
			return kv.Value, kv.Line
		}
	}
	return "", s.Line
}

// need hands the value of a key that must be there to set.
func (s *section) need(key string, set func(string) error) bool {
	text, line := s.value(key)
	if text == "" {
		s.fail(s.at(line, key).refuse("", "is missing in ["+s.Name+"]: add it"))
		return false
	}
	if err := set(text); err != nil {
		s.fail(s.at(line, key).refuse(withoutKey(text), withoutKey(err.Error())))
		return false
	}
	return true
}

// withoutKey hides what may be a key of WireGuard's that was put in the wrong place.
func withoutKey(text string) string { return keyText.ReplaceAllString(text, "(redacted)") }

var keyText = regexp.MustCompile(`[A-Za-z0-9+/]{43}=?|[0-9a-fA-F]{64}`)

func (s *section) service(kind Kind) Service {
	return Service{Kind: kind, Tunnel: s.tunnel, Source: s.at(s.Line, "").source}
}

// bind reads BindAddress. wireproxy takes ":1080" to be every address, which is not obeyed
// without being said.
func (s *section) bind(network string, service *Service) bool {
	return s.need("BindAddress", func(text string) (err error) {
		if strings.HasPrefix(text, ":") {
			_, line := s.value("BindAddress")
			s.notice(&s.spec.Warnings, line, "BindAddress", text, "listens on loopback only: write 0.0.0.0"+text+", a Username and a Password to listen on every address")
		}
		service.Listen, err = parseListen(network, filepath.Dir(s.path), text)
		return err
	})
}

func (s *section) target(service *Service) bool {
	return s.need("Target", service.setTarget)
}

func (s *section) socks5() (Service, bool) { return s.proxy(SOCKS5) }
func (s *section) http() (Service, bool)   { return s.proxy(HTTP) }

func (s *section) proxy(kind Kind) (Service, bool) {
	service := s.service(kind)
	bound := s.bind("tcp", &service)
	return service, s.credential(&service) && bound
}

func (s *section) credential(service *Service) bool {
	user, line := s.value("Username")
	pass, passLine := s.value("Password")
	if user == "" && pass == "" {
		return true
	}
	service.strangers = true
	if user == "" || pass == "" {
		s.fail(s.at(max(line, passLine), "Username").refuse("", "and Password go together: give both or none"))
		return false
	}
	users, err := proxy.NewUsers(proxy.NewCredentials(user, pass))
	if err != nil {
		s.fail(s.at(line, "Username").refuse("", err.Error()))
		return false
	}
	service.admit(users, user+":"+pass)
	return true
}

func (s *section) tcpClient() (Service, bool) {
	service := s.service(Forward)
	bound := s.bind("tcp", &service)
	return service, s.target(&service) && bound
}

func (s *section) tcpServer() (Service, bool) {
	service := s.service(Publish)
	bound := s.need("ListenPort", func(text string) error { return service.setListen("tcp", "", text) })
	return service, s.target(&service) && bound
}

// udpProxy reads a UDP forward. Its InactivityTimeout is in seconds, and none is never, as
// wireproxy has it; the number of flows is bounded all the same.
func (s *section) udpProxy() (Service, bool) {
	service := s.service(Forward)
	service.Idle = -1
	bound := s.bind("udp", &service)
	text, line := s.value("InactivityTimeout")
	if text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			s.fail(s.at(line, "InactivityTimeout").refuse(text, "is not a number of seconds: write 30, or 0 for never"))
			return service, false
		}
		if n > 0 {
			service.Idle = time.Duration(n) * time.Second
		}
	}
	return service, s.target(&service) && bound
}
