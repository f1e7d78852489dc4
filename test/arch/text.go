package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

const (
	maxFunctionLines = 80
	maxFileLines     = 600
)

// lengths keeps functions and files of the product to what can be read in one go.
func lengths(f *File) (breaches []Breach) {
	if !f.Product() || ast.IsGenerated(f.ast) {
		return nil
	}
	if f.Lines > maxFileLines {
		breaches = append(breaches, Breach{f.Path, f.Lines, fmt.Sprintf("%d lines are more than %d: a file tells one story, split it", f.Lines, maxFileLines)})
	}
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if lines := f.fset.Position(fn.End()).Line - f.line(fn) + 1; lines > maxFunctionLines {
			breaches = append(breaches, Breach{f.Path, f.line(fn), fmt.Sprintf("func %s has %d lines, more than %d: split it", fn.Name.Name, lines, maxFunctionLines)})
		}
	}
	return breaches
}

// The words are put together here so that this file does not hold them.
var open = regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "X" + "XX"}, "|") + `)\b`)

// openWork finds notes of work left undone.
func openWork(f *File) (breaches []Breach) {
	for _, at := range open.FindAllIndex(f.bytes, -1) {
		line := f.fset.Position(f.fset.File(f.ast.FileStart).Pos(at[0])).Line
		breaches = append(breaches, Breach{f.Path, line, string(f.bytes[at[0]:at[1]]) + ": finish it or take it out"})
	}
	return breaches
}

// docs wants a sentence for every exported name of a library.
func docs(f *File) (breaches []Breach) {
	if !f.Library() || ast.IsGenerated(f.ast) {
		return nil
	}
	missing := func(n ast.Node, name string) {
		breaches = append(breaches, Breach{f.Path, f.line(n), name + " is exported and has no comment"})
	}
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && !wellKnown(d) {
				missing(d, "func "+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if name := exportedName(spec); name != "" && d.Doc == nil && !hasDoc(spec) {
					missing(spec, name)
				}
			}
		}
	}
	return breaches
}

// wellKnown reports whether fn is a method whose meaning a well-known interface gives, or
// one of a type that nobody outside sees.
func wellKnown(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return false
	}
	known := []string{"String", "GoString", "Format", "Error", "Unwrap", "Is", "Len", "Less", "Swap",
		"MarshalText", "UnmarshalText", "MarshalJSON", "UnmarshalJSON", "MarshalZerologObject"}
	return slices.Contains(known, fn.Name.Name) || !ast.IsExported(receiver(fn.Recv.List[0].Type))
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

func exportedName(spec ast.Spec) string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			return "type " + s.Name.Name
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				return name.Name
			}
		}
	}
	return ""
}

func hasDoc(spec ast.Spec) bool {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Doc != nil || s.Comment != nil
	case *ast.ValueSpec:
		return s.Doc != nil || s.Comment != nil
	}
	return true
}

// packageDocs wants one package comment for each package of the product.
func packageDocs(files []*File) (breaches []Breach) {
	documented, first := make(map[string]bool), make(map[string]*File)
	for _, f := range files {
		if !f.Product() {
			continue
		}
		if first[f.Dir()] == nil {
			first[f.Dir()] = f
		}
		documented[f.Dir()] = documented[f.Dir()] || f.ast.Doc != nil
	}
	for dir, f := range first {
		if !documented[dir] {
			breaches = append(breaches, Breach{f.Path, 1, "package " + dir + " has no package comment: say what it owns and what it never does"})
		}
	}
	return breaches
}
