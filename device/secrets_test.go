package device

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"
)

// planted are bytes that no text holds by chance in any notation.
var planted = [KeyLen]byte{
	0xb9, 0xd3, 0xa7, 0xf1, 0xc5, 0xe9, 0x9b, 0xdd, 0xaf, 0xf3, 0xcd, 0xeb, 0x97, 0xd5, 0xad, 0xf7,
	0xcb, 0xe5, 0x9d, 0xdb, 0xa9, 0xf5, 0xc1, 0xe7, 0x95, 0xd1, 0xab, 0xfb, 0xc7, 0xe3, 0x9f, 0xd9,
}

// windows are four bytes each of the planted key: at its start, in its middle, at its end.
var windows = [][]byte{planted[:4], planted[12:16], planted[28:]}

// leaked returns the part of text that gives the planted key away.
func leaked(text string) string {
	b64 := base64.StdEncoding.EncodeToString(planted[:])
	for _, i := range []int{0, 4, 12, 24, 32} {
		if part := b64[i : i+8]; strings.Contains(text, part) {
			return part
		}
	}
	text = strings.ToLower(text)
	for _, window := range windows {
		if part := notated(window, text); part != "" {
			return part
		}
	}
	return ""
}

// notated returns the part of text, in lower case, that is window in any notation of bytes.
func notated(window []byte, text string) string {
	if raw := strings.ToLower(string(window)); strings.Contains(text, raw) {
		return raw
	}
	for _, verb := range []string{"%d", "%x", "%o", "%b"} {
		if !strings.Contains(text, fmt.Sprintf(verb, window[0])) {
			continue
		}
		for _, prefix := range []string{"", "0", "0x", "0o", "0b", `\x`, "%%"} {
			for _, between := range []string{"", " ", ", ", ",", "\n"} {
				if part := joined(window, prefix+verb, between); strings.Contains(text, part) {
					return part
				}
			}
		}
	}
	return ""
}

func joined(window []byte, verb, between string) string {
	var parts []string
	for _, b := range window {
		parts = append(parts, fmt.Sprintf(verb, b))
	}
	return strings.Join(parts, between)
}

func TestLeaksAreRecognised(t *testing.T) {
	for _, text := range []string{
		base64.StdEncoding.EncodeToString(planted[:]),
		fmt.Sprint(planted), fmt.Sprintf("%x", planted), fmt.Sprintf("% X", planted), fmt.Sprintf("%#v", planted),
		fmt.Sprintf("%q", string(planted[:])), string(planted[11:17]), fmt.Sprintf("%o", planted), fmt.Sprintf("%08b", planted),
	} {
		if leaked(text) == "" {
			t.Errorf("not recognised: %q", text)
		}
	}
}

// box holds a value in every way that a caller's own types may.
type box[T any] struct {
	value   T
	pointer *T
	list    []T
	table   map[string]T
	any     any
	nested  struct{ inner *box[T] }
	Open    T
}

type boxError[T any] struct{ box box[T] }

func (e boxError[T]) Error() string {
	return fmt.Sprintf("a caller's own error: %v %+v", e.box, e.box.Open)
}

// boxed returns the value as callers may hold it.
func boxed[T any](v T) []any {
	b := box[T]{v, &v, []T{v}, map[string]T{"k": v}, v, struct{ inner *box[T] }{}, v}
	b.nested.inner = &box[T]{value: v, Open: v}
	return []any{v, &v, []T{v}, map[string]T{"k": v}, [1]T{v}, b, boxError[T]{b}}
}

// printed shows a value in all the ways there are. It maps each text to one way to get it.
func printed(v any) map[string]string {
	out := make(map[string]string)
	const verbs = "abcdefghijklmnopqrstuvwxyzEFGOTUXZ" // known ones and others
	for _, verb := range verbs {
		for _, flags := range []string{"", "+", "#", "0"} {
			format := "%" + flags + string(verb)
			out[fmt.Sprintf(format, v)] = format
		}
	}
	out[fmt.Errorf("set %v: %w", v, errors.ErrUnsupported).Error()] = "Errorf"
	out[text(json.Marshal(v))] = "json"
	out[text(yaml.Marshal(v))] = "yaml"
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	log := zerolog.New(&b)
	log.Info().Interface("v", v).Any("w", v).Msgf("%v", v)
	if err, ok := v.(error); ok {
		log.Err(err).Msg("x")
	}
	out[b.String()] = "a log"
	return out
}

func text(b []byte, err error) string { return fmt.Sprint(string(b), err) }

func TestNoTypePrintsASecret(t *testing.T) {
	private, psk := newPrivateKey(planted), PresharedKey{newSecret(planted)}
	peer := PeerConfig{PublicKey: testPeer(1), PresharedKey: psk, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("::/0")}}
	config := Config{PrivateKey: private, Peers: []PeerConfig{peer}}
	state := State{Peers: []PeerState{{PublicKey: testPeer(1), PresharedKey: psk}}}
	section := Section{Name: "Socks5", Keys: []KeyValue{{"password", private.Reveal(), 1}, {"Username", private.Reveal(), 2}}}
	ops := Diff(State{}, config)
	have := map[string][]any{
		"PrivateKey":   boxed(private),
		"PresharedKey": boxed(psk),
		"Config":       boxed(config),
		"PeerConfig":   boxed(peer),
		"State":        boxed(state),
		"PeerState":    boxed(state.Peers[0]),
		"Op":           append(boxed(ops[0]), boxed(ops)...),
		"Change":       boxed(Changes(ops)),
		"File":         boxed(File{Config: config}),
		"Section":      {section, &section},
		"KeyValue":     {section.Keys[0], section.Keys[1], section.Keys},
	}
	// What a Device is made of is in the table. It is a handle, locked and full of channels.
	handles := []string{"Device"}
	for _, name := range exportedTypesWith(t, "PrivateKey", "PresharedKey", "secret") {
		if have[name] == nil && !slices.Contains(handles, name) {
			t.Errorf("type %s can hold a secret: add one to this test", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		for _, v := range have[name] {
			for got, how := range printed(v) {
				if (name == "KeyValue" || name == "Section") && strings.ContainsAny(how, "pw") {
					continue // verbs for which fmt asks no type how to print its strings
				}
				if part := leaked(got); part != "" {
					t.Errorf("%s as %T shows %q with %s: %s", name, v, part, how, got)
				}
			}
		}
	}
}

// exportedTypesWith lists the exported types of the package that hold one of the roots, by
// way of whatever types.
func exportedTypesWith(t *testing.T, roots ...string) (out []string) {
	t.Helper()
	uses := typesUsed(t)
	var holds func(name string, seen map[string]bool) bool
	holds = func(name string, seen map[string]bool) bool {
		if slices.Contains(roots, name) {
			return true
		}
		if seen[name] {
			return false
		}
		seen[name] = true
		return slices.ContainsFunc(uses[name], func(n string) bool { return holds(n, seen) })
	}
	for name := range uses {
		if ast.IsExported(name) && holds(name, make(map[string]bool)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// typesUsed maps each type of the package to the names in its definition, but for those that
// are only passed to its functions.
func typesUsed(t *testing.T) map[string][]string {
	t.Helper()
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	uses := make(map[string][]string)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			uses[spec.Name.Name] = append(uses[spec.Name.Name], namesIn(spec.Type)...)
			return false
		})
	}
	return uses
}

func namesIn(n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.InterfaceType, *ast.SelectorExpr: // the last is of another package
			return false
		case *ast.Field:
			names = append(names, namesIn(n.Type)...)
			return false
		case *ast.Ident:
			names = append(names, n.Name)
		}
		return true
	})
	return names
}

func TestNoRemarkOnAFileShowsASecret(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(planted[:])
	o := fuzzOptions()
	env := o.LookupEnv
	o.LookupEnv = func(name string) (string, bool) {
		if name == "PLANTED" {
			return key, true
		}
		return env(name)
	}
	for _, secret := range []string{key, key[:43], key + key, key + "=", hex.EncodeToString(planted[:]), strings.ToUpper(hex.EncodeToString(planted[:])), "$PLANTED"} {
		for _, line := range linesWith(secret) {
			for _, above := range []string{"", "[Interface]\n", "[Interface]\nAddress = fd00::1\n[Peer]\nPublicKey = $K\n", "[Socks5]\n", "[Sock]\n"} {
				f, err := Parse("wg0.conf", strings.NewReader(above+line+"\n"+line+"\n[Peer]\nPublicKey = $K\n"), o)
				if err != nil {
					checkShown(t, above+line, err, fmt.Sprintf("%+v", err))
					continue
				}
				for _, n := range slices.Concat(f.Ignored, f.Warnings) {
					checkShown(t, above+line, n, fmt.Sprintf("%+v %#v", n, n))
				}
				for _, p := range f.Config.Peers {
					checkShown(t, above+line, p.Name, p.Name)
				}
			}
		}
	}
}

func checkShown(t *testing.T, line string, v any, shown string) {
	t.Helper()
	if part := leaked(shown); part != "" {
		t.Errorf("%T for %q shows %q: %s", v, line, part, shown)
	}
}

// linesWith puts a secret wherever a tired person may put one.
func linesWith(secret string) []string {
	out := []string{
		secret, secret + " = " + secret, "[" + secret + "]", "[Peer] # " + secret, "[Peer] # PresharedKey " + secret,
		"# Name = " + secret, "#" + secret, "PrivateKey " + secret, "PrivateKey: " + secret, "PrivatKey = " + secret,
		"Preshared_Key=" + secret, "Wallpaper = " + secret, "PostUp = wg set %i private-key <(echo " + secret + ")",
		"PostUp = " + secret, "PostUp = KEY=" + secret + " run", "PostUp = echo " + secret, "Address = 10.0.0.1/" + secret,
		"AllowedIPs = 10.0.0.0/8, " + secret, "Endpoint = " + secret + ":51820", "Endpoint = [" + secret + "]:51820",
		"Endpoint = fe80::1%" + secret + ":51820", "Endpoint = a.example:" + secret, "DNS = ~" + secret, "DNS = a." + secret,
		"Password = " + secret, "Password = `" + secret, "Username = $" + secret, "Target = " + secret,
	}
	for _, key := range slices.Concat(interfaceKeys, peerKeys[1:], topKeys, amneziaKeys) { // a PublicKey is shown
		out = append(out, key+" = "+secret)
	}
	return out
}
