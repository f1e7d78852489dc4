package gateway

import (
	"os"
	"strings"

	"github.com/stillwire/stillwire/netstack/proxy"
)

// flags reads the services that the command line asks for.
func (l *loader) flags() {
	for _, list := range []struct {
		flag string
		kind Kind
		args []string
	}{
		{"--socks5", SOCKS5, l.SOCKS5},
		{"--http", HTTP, l.HTTP},
		{"--forward", Forward, l.Forward},
		{"--publish", Publish, l.Publish},
	} {
		for _, arg := range list.args {
			l.short(origin{field: l.name(list.flag)}, "", list.kind, arg)
		}
	}
}

// short adds a service from the one-line form that flags and plain YAML entries have.
func (l *loader) short(at origin, dir string, kind Kind, arg string) {
	tunnel, rest := cutTunnel(arg)
	s := Service{Kind: kind, Tunnel: tunnel, Source: at.String()}
	var reason string
	switch kind {
	case SOCKS5, HTTP:
		reason = l.shortProxy(at, dir, rest, &s)
	default:
		reason = shortForward(dir, rest, &s)
	}
	if reason != "" {
		l.fail(at.refuse(withoutCredential(arg), reason))
		return
	}
	l.spec.Services = append(l.spec.Services, s)
}

// withoutCredential hides what stands before the at sign, for people will write a password
// where its file belongs.
func withoutCredential(arg string) string {
	if i := strings.LastIndexByte(arg, '@'); i > 0 && !strings.Contains(arg, "unix:@") {
		return "…" + arg[i:]
	}
	return arg
}

// cutTunnel takes the tunnel's name off "wg0/127.0.0.1:1080" and "wg0/tcp/8080=…". What
// stands before the first slash is a tunnel unless it is a network, or has a colon or an at
// sign as "unix:/path" and "user:/path@…" do.
func cutTunnel(arg string) (tunnel, rest string) {
	first, after, ok := strings.Cut(arg, "/")
	if !ok || first == "" || strings.ContainsFunc(first, func(r rune) bool { return !inTunnelName(r) }) {
		return "", arg
	}
	second, _, _ := strings.Cut(after, "/")
	if isNetwork(first) && !isNetwork(second) {
		return "", arg
	}
	return first, after
}

func isNetwork(s string) bool { return s == "tcp" || s == "udp" }

// shortProxy reads [USER:PASSFILE@]LISTEN.
func (l *loader) shortProxy(at origin, dir, s string, service *Service) (reason string) {
	if i := strings.LastIndexByte(s, '@'); i >= 0 && !strings.HasPrefix(s, "unix:") {
		user, file, ok := strings.Cut(s[:i], ":")
		if !ok || user == "" || file == "" {
			return "has no USER:PASSFILE before the @: PASSFILE is a file that holds the password"
		}
		s = s[i+1:]
		l.password(at, service, user, inDir(dir, file))
	}
	listen, err := parseListen("tcp", dir, s)
	if err != nil {
		return err.Error()
	}
	service.Listen = listen
	return ""
}

// shortForward reads tcp/LISTEN=TARGET and udp/LISTEN=TARGET.
func shortForward(dir, s string, service *Service) (reason string) {
	network, rest, _ := strings.Cut(s, "/")
	listen, target, ok := cutLast(rest, '=')
	if tunnel, right := swapped(s); right != "" {
		return "has the tunnel " + tunnel + " in the wrong place: write " + right
	}
	if !isNetwork(network) || !ok {
		return "is not NETWORK/LISTEN=TARGET: " + forwardExample(service.Kind)
	}
	if err := service.setListen(network, dir, listen); err != nil {
		return err.Error()
	}
	if err := service.setTarget(target); err != nil {
		return "target " + err.Error()
	}
	return ""
}

// swapped mends tcp/TUNNEL/LISTEN=TARGET.
func swapped(s string) (tunnel, right string) {
	parts := strings.SplitN(s, "/", 3)
	if len(parts) < 3 || !isNetwork(parts[0]) || parts[1] == "" || strings.ContainsFunc(parts[1], func(r rune) bool { return !inTunnelName(r) }) {
		return "", ""
	}
	return parts[1], parts[1] + "/" + parts[0] + "/" + parts[2]
}

func forwardExample(kind Kind) string {
	if kind == Publish {
		return "write tcp/8080=127.0.0.1:80 or udp/53=127.0.0.1:53"
	}
	return "write tcp/127.0.0.1:5432=10.0.0.5:5432 or udp/127.0.0.1:53=10.0.0.1:53"
}

// cutLast cuts around the last sep, for a unix path may hold one and a target cannot.
func cutLast(s string, sep byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// setListen reads where a forward or a publish listens.
func (s *Service) setListen(network, dir, text string) (err error) {
	if s.Kind == Publish {
		s.Listen, err = parseInside(network, text)
		return err
	}
	s.Listen, err = parseListen(network, dir, text)
	return err
}

// setTarget reads where the flows of a forward or a publish go.
func (s *Service) setTarget(text string) (err error) {
	if s.Kind == Publish && s.Listen.Network == "tcp" && strings.HasPrefix(text, "unix:/") {
		_, err = parseSocketPath("", strings.TrimPrefix(text, "unix:"))
		s.Target = text
		return err
	}
	s.Target, err = parseTarget(text)
	return err
}

// password admits one user, with the password that the file holds.
func (l *loader) password(at origin, service *Service, user, path string) {
	service.strangers = true
	b, err := l.reads.ReadFile(path)
	if err != nil {
		shown := "" // without a slash it may be the password itself
		if strings.ContainsRune(path, '/') {
			shown = path
		}
		l.fail(at.refuseFor(shown, "cannot be read as the password file of "+user+": "+reasonOf(err)+": write the path of a file that holds the password", err))
		return
	}
	pass := strings.TrimRight(string(b), "\r\n")
	users, err := proxy.NewUsers(proxy.NewCredentials(user, pass))
	if err != nil {
		l.fail(at.refuse(path, "holds no password that can be used: "+err.Error()))
		return
	}
	service.admit(users, user+":"+pass)
	l.warnIfOpen(at, path)
}

// reasonOf leaves out the path that an error of os repeats.
func reasonOf(err error) string {
	if p, ok := err.(*os.PathError); ok {
		return p.Err.Error()
	}
	return err.Error()
}
