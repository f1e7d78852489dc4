package file

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// value is a YAML node, which alone knows its line, and the path where it stands.
type value struct {
	*yaml.Node
	path string // "spec.endpoint"
}

// field is one key that a mapping may have, and what is done with its value.
type field struct {
	name string
	read func(value)
}

// object is one document that is being read.
type object struct {
	*reader
	kind    mesh.Kind
	name    string
	without string // what becomes of the object without a value: "the node goes on without it"
	whole   bool   // it is taken whole or not at all
	lost    bool   // it is left out
}

// refuse notes that a value cannot be obeyed and what is done instead.
func (o *object) refuse(v value, f *scan.Fault, instead string) {
	if o.whole {
		o.lost, instead = true, o.without
	}
	text := ""
	if v.Kind == yaml.ScalarNode {
		text = scan.Shown(v.Value)
	}
	o.problem(v, text, f, instead)
}

// refuseKey is refuse for a value that is or may be a secret, which costs the object.
func (o *object) refuseKey(v value, f *scan.Fault) {
	o.lost = true
	o.problem(v, "", f, fmt.Sprintf("the %s is left out", o.kind))
}

func (o *object) problem(v value, text string, f *scan.Fault, instead string) {
	o.note(mesh.Problem{
		Subject: mesh.Subject{Kind: o.kind, Name: o.name, Source: o.at(v.Line)},
		Field:   v.path,
		Value:   text,
		Reason:  mesh.Invalid,
		Detail:  f.Detail + ", so " + instead,
		Remedy:  f.Remedy,
	})
}

// mapping hands each value of v to its field. A key that is unknown or given twice is a fault.
func (o *object) mapping(v value, fields ...field) {
	o.walk(v, fields, func(key value) {
		if !word.MatchString(key.Value) {
			o.refuse(key, scan.Bad("has a line that is no field", "remove it"), "it is not obeyed")
			return
		}
		key.path = join(v.path, key.Value)
		o.refuse(key, scan.Bad("is not a field here", scan.Meant(key.Value, names(fields))), "it is not obeyed")
	})
}

// openMapping is mapping for what programs write: a newer one may say more.
func (o *object) openMapping(v value, fields ...field) { o.walk(v, fields, func(value) {}) }

// walk hands each value of v to its field, and each key of no field to unknown.
func (o *object) walk(v value, fields []field, unknown func(key value)) {
	if isNull(v.Node) || !o.afford(v.Node) {
		return
	}
	if v.Kind != yaml.MappingNode {
		o.refuse(v, scan.Bad("is not a mapping", "write its fields below it, each as name: value"), o.without)
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(v.Content); i += 2 {
		key, val := v.Content[i], follow(v.Content[i+1])
		j := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		line, twice := seen[key.Value]
		at := value{&yaml.Node{Line: key.Line, Value: key.Value}, v.path} // of no kind, so refuse shows no value
		switch {
		case j < 0:
			unknown(at)
		case twice:
			at.path = join(v.path, key.Value)
			o.refuse(at, scan.Bad(fmt.Sprintf("is given in line %d already", line), "keep one of the two"), "the first one counts")
		case !isNull(val) && fields[j].read != nil:
			fields[j].read(value{val, join(v.path, key.Value)})
		}
		seen[key.Value] = key.Line
	}
}

// items hands each entry of a list to read.
func (o *object) items(v value, read func(value)) {
	if !o.afford(v.Node) {
		return
	}
	if v.Kind != yaml.SequenceNode {
		o.refuse(v, scan.Bad("is not a list", "write [a, b], or each entry on a line that begins with a dash"), o.without)
		return
	}
	for _, n := range v.Content {
		read(value{follow(n), v.path})
	}
}

// afford keeps aliases of aliases from making endless work.
func (r *reader) afford(n *yaml.Node) bool {
	spent := r.left <= 0
	r.left -= 1 + len(n.Content)
	if r.left <= 0 && !spent {
		r.broken = true
		r.refuseFile(n.Line, "", "", fmt.Sprintf("has more than %d values, so the rest is not read", r.most), "split the file, and use aliases less")
	}
	return r.left > 0
}

// values bounds how many YAML nodes a text is made into, without making them: behind each of
// these characters at most one begins, but behind a comma in braces both a key and its value.
func values(text []byte) (n int) {
	for _, c := range text {
		switch c {
		case '\n', ':', '-', '?', '[', '{':
			n++
		case ',':
			n += 2
		}
	}
	return n
}

// one is a field with a single value.
func one[T any](o *object, name string, to *T, parse func(string) (T, *scan.Fault)) field {
	return field{name, func(v value) {
		if got, ok := scalar(o, v, parse, o.without); ok {
			*to = got
		}
	}}
}

// many is a field with a list. An entry that cannot be read is left out.
func many[T any](o *object, name string, to *[]T, parse func(string) (T, *scan.Fault)) field {
	return field{name, func(v value) {
		o.items(v, func(v value) {
			if got, ok := scalar(o, v, parse, "this entry is left out"); ok {
				*to = append(*to, got)
			}
		})
	}}
}

func scalar[T any](o *object, v value, parse func(string) (T, *scan.Fault), instead string) (got T, ok bool) {
	if v.Kind != yaml.ScalarNode {
		o.refuse(v, scan.Bad("is not one value", "write one value on the line"), instead)
		return got, false
	}
	if v.Value == "" {
		return got, false
	}
	got, f := parse(v.Value)
	if f != nil {
		o.refuse(v, f, instead)
	}
	return got, f == nil
}

// names lists the fields that say something.
func names(fields []field) (out []string) {
	for _, f := range fields {
		if f.read != nil {
			out = append(out, f.name)
		}
	}
	return out
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// follow goes from an alias to what it stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
