package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/scan"
)

// readDocuments reads a stream of YAML documents, or JSON.
func (r *reader) readDocuments(text []byte) {
	if start := bytes.TrimSpace(text); len(start) > 0 && start[0] == '{' {
		// In JSON a tab stands between words alone; in YAML it must not.
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	if values(text) > r.most { // a tree takes 200 bytes a value
		r.broken = true
		r.refuseFile(0, "", "", fmt.Sprintf("may have more than %d values, so what it said before stays", r.most), "split the file")
		return
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.refuseSyntax(err)
			return
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 && !isNull(doc.Content[0]) {
			r.readDocument(follow(doc.Content[0]), true)
		}
	}
}

// syntaxLine is where a YAML error says that it is.
var syntaxLine = regexp.MustCompile(`^line (\d+): `)

func (r *reader) refuseSyntax(err error) {
	r.broken = true
	what, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if m := syntaxLine.FindStringSubmatch(what); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
	}
	if strings.HasPrefix(what, "did not find expected") {
		line++ // the parser counts from 0, unlike the scanner
	}
	r.refuseFile(line, "", "", "is no YAML from about here on ("+scan.Shown(what)+"), so what it said before stays", "mend the syntax")
}

// readDocument reads one object, or with list the objects of a List.
func (r *reader) readDocument(n *yaml.Node, list bool) {
	if !r.afford(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.refuseFile(n.Line, "", "", "has a document that is no object, so it is left out", "begin it with apiVersion, kind and metadata")
		return
	}
	version, kind := lookup(n, "apiVersion"), lookup(n, "kind")
	switch {
	case kind != nil && list && (kind.Value == kindList || strings.HasSuffix(kind.Value, kindList)):
		r.readList(n)
	case version == nil || version.Value != apiVersion:
		r.refuseWord(n, version, "apiVersion", []string{apiVersion})
	case kind == nil || kinds[kind.Value] == "":
		r.refuseWord(n, kind, "kind", []string{kindNode, kindPeer, kindMesh})
	default:
		r.readObject(n, kind.Value)
	}
}

// readList reads what kubectl get prints. A List in a List is none: it could hold itself.
func (r *reader) readList(n *yaml.Node) {
	items := lookup(n, "items")
	if items == nil {
		return
	}
	o := &object{reader: r, kind: mesh.KindSource, name: r.name, without: "the list is left out"}
	o.items(value{items, "items"}, func(v value) { r.readDocument(v.Node, false) })
}

// refuseWord is for a document of a kind that is not ours.
func (r *reader) refuseWord(doc, n *yaml.Node, field string, words []string) {
	const left = ", so the document is left out"
	if n == nil {
		r.refuseFile(doc.Line, field, "", "is missing"+left, scan.Meant("", words))
		return
	}
	r.refuseFile(n.Line, field, scan.Shown(n.Value), "is not known here"+left, scan.Meant(n.Value, words))
}

func (r *reader) readObject(n *yaml.Node, kind string) {
	o := &object{reader: r, kind: kinds[kind], without: fmt.Sprintf("the %s goes on without it", kinds[kind])}
	if kind == kindMesh {
		o.whole, o.without = true, "the settings stay as they were"
	}
	identity, ok := o.identity(n, kind)
	if !ok {
		r.unsettled = r.unsettled || kind == kindMesh
		return
	}
	switch kind {
	case kindNode:
		o.readNode(n, identity)
	case kindPeer:
		o.readPeer(n, identity)
	case kindMesh:
		o.readSettings(n, identity)
	}
}

// identity reads the name first, for all later problems are told with it.
func (o *object) identity(n *yaml.Node, kind string) (mesh.Identity, bool) {
	at := value{n, "metadata.name"}
	if meta := lookup(n, "metadata"); meta != nil {
		if node := lookup(meta, "name"); node != nil {
			at.Node = node
			o.name = scan.Shown(node.Value)
		}
	}
	instead := fmt.Sprintf("the %s is left out", o.kind)
	switch {
	case o.name == "":
		o.problem(at, "", scan.Bad("is missing", "give the object a name"), instead)
	case !scan.IsName(at.Value):
		_, f := scan.Name(at.Value)
		o.problem(at, scan.Shown(at.Value), f, instead)
	case o.status != "" && (kind != kindNode || at.Value != o.status):
		o.problem(at, "", scan.Bad("stands in the status file of node "+o.status, "move it out of the folder status"), instead)
	default:
		return mesh.Identity{Name: at.Value, Source: o.at(n.Line)}, true
	}
	return mesh.Identity{}, false
}

// fields lists those that all kinds have.
func (o *object) fields(id *mesh.Identity, spec, status func(value)) []field {
	return []field{
		{name: "apiVersion"}, {name: "kind"},
		{"metadata", func(v value) { o.mapping(v, o.metadata(id)...) }},
		{"spec", spec},
		{"status", status},
	}
}

// metadata lists the fields that Kubernetes has, most of which say nothing to a mesh.
func (o *object) metadata(id *mesh.Identity) []field {
	return []field{
		{name: "name"},
		one(o, "uid", &id.UID, scan.Words),
		one(o, "creationTimestamp", &id.Created, scan.Time),
		{"annotations", func(v value) { o.openMapping(v, one(o, annotationUndeclared, &id.Undeclared, scan.Bool)) }},
		{name: "labels"}, {name: "namespace"}, {name: "generateName"},
		{name: "generation"}, {name: "resourceVersion"}, {name: "selfLink"}, {name: "ownerReferences"},
		{name: "finalizers"}, {name: "managedFields"}, {name: "deletionTimestamp"}, {name: "deletionGracePeriodSeconds"},
	}
}

// lookup returns the value of a key, nil when there is none.
func lookup(n *yaml.Node, key string) *yaml.Node {
	if n = follow(n); n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && !isNull(follow(n.Content[i+1])) {
			return follow(n.Content[i+1])
		}
	}
	return nil
}
