package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// globals keeps state out of the libraries: many instances live in one process and share
// nothing. A package-level variable is fine when it never changes (see constantLike), and
// there is no init.
func globals(f *File) (breaches []Breach) {
	if !f.Library() || ast.IsGenerated(f.ast) {
		return nil
	}
	for _, decl := range f.ast.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			breaches = append(breaches, Breach{f.Path, f.line(fn), "func init: no work at import, do it in a constructor"})
		}
	}
	for _, v := range f.variables() {
		if !v.embedded && !constantLike(v.value) {
			breaches = append(breaches, Breach{f.Path, v.line, fmt.Sprintf("var %s is global state: keep it in a value that a caller owns", v.name)})
		}
	}
	return breaches
}

// variable is one package-level variable.
type variable struct {
	name     string
	line     int
	value    ast.Expr // nil: none
	embedded bool     // filled by a go:embed line
}

func (f *File) variables() (vars []variable) {
	for _, decl := range f.ast.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			s := spec.(*ast.ValueSpec)
			embedded := embeds(gen.Doc) || embeds(s.Doc)
			for i, name := range s.Names {
				if name.Name == "_" {
					continue
				}
				v := variable{name: name.Name, line: f.line(name), embedded: embedded}
				if len(s.Values) == len(s.Names) {
					v.value = s.Values[i]
				}
				vars = append(vars, v)
			}
		}
	}
	return vars
}

func embeds(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// constantLike reports whether a variable with this initial value is a constant that Go
// has no constant form for: an error, a compiled expression, a parsed address, a table.
// That nothing assigns to it later is checked by assignedGlobals.
func constantLike(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CompositeLit:
		return constantType(v.Type)
	case *ast.CallExpr:
		return called(v.Fun) == "append" && constantLike(v.Args[0]) || slices.Contains([]string{
			"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "template.Must",
			"netip.MustParseAddr", "netip.MustParsePrefix", "netip.MustParseAddrPort",
			"netip.AddrFrom4", "netip.AddrFrom16", "netip.PrefixFrom", "netip.AddrPortFrom",
			"netip.IPv6Unspecified", "netip.IPv4Unspecified", "netip.IPv6LinkLocalAllNodes",
			"reflect.TypeFor", "binary.BigEndian", "base64.StdEncoding.Strict", "crc32.MakeTable",
			"tcpip.AddrFrom4", "tcpip.AddrFrom16",
		}, called(v.Fun)) || isConversion(v.Fun)
	case *ast.BasicLit, *ast.BinaryExpr:
		return true
	case *ast.SelectorExpr: // another package's value under a short name
		return true
	}
	return false
}

// constantType reports whether a literal of this type can be a table: the types with which
// one shares or guards state cannot.
func constantType(t ast.Expr) bool {
	name := called(t)
	return !strings.HasPrefix(name, "sync.") && !strings.HasPrefix(name, "atomic.")
}

func isConversion(fun ast.Expr) bool {
	_, slice := fun.(*ast.ArrayType)
	return slice
}

// called returns the dotted name of what is called or named, without type arguments.
func called(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return called(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return called(e.X)
	case *ast.CallExpr:
		return called(e.Fun)
	}
	return ""
}

// assignedGlobals finds assignments to package-level variables of the libraries, and to
// parts of them.
func assignedGlobals(files []*File) (breaches []Breach) {
	names := make(map[string]map[string]bool) // folder, variable
	for _, f := range files {
		if !f.Library() {
			continue
		}
		for _, v := range f.variables() {
			if names[f.Dir()] == nil {
				names[f.Dir()] = make(map[string]bool)
			}
			names[f.Dir()][v.name] = true
		}
	}
	for _, f := range files {
		if f.Library() && names[f.Dir()] != nil {
			breaches = append(breaches, f.assignments(names[f.Dir()])...)
		}
	}
	return breaches
}

func (f *File) assignments(globals map[string]bool) (breaches []Breach) {
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		local := locals(fn)
		for _, target := range targets(fn.Body) {
			if name := root(target); globals[name] && !local[name] {
				breaches = append(breaches, Breach{f.Path, f.line(target), fmt.Sprintf("assigns to the package-level %s: keep what changes in a value that a caller owns", name)})
			}
		}
	}
	return breaches
}

// targets lists what a body assigns to, increments or deletes from.
func targets(body *ast.BlockStmt) (out []ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				out = append(out, s.Lhs...)
			}
		case *ast.IncDecStmt:
			out = append(out, s.X)
		case *ast.CallExpr:
			if name := called(s.Fun); (name == "delete" || name == "clear") && len(s.Args) > 0 {
				out = append(out, s.Args[0])
			}
		}
		return true
	})
	return out
}

// locals lists the names that a function declares anywhere. A name that is both a global
// and a local of the function is taken for the local.
func locals(fn *ast.FuncDecl) map[string]bool {
	names := make(map[string]bool)
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.AssignStmt:
			for _, lhs := range n.Lhs {
				if id, ok := lhs.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names[id.Name] = true
				}
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names[name.Name] = true
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// root returns the variable that an expression such as a.b[i].c begins with.
func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.IndexExpr:
		return root(e.X)
	case *ast.SelectorExpr:
		return root(e.X)
	case *ast.StarExpr:
		return root(e.X)
	case *ast.ParenExpr:
		return root(e.X)
	}
	return ""
}
