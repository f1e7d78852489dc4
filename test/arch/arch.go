// Package arch holds the rules of Stillwire's design that a program can check: which
// package may import which, what no product code may call, and how long a function or a
// file may be. Its test reads every Go file of the repository, of all its modules, and
// names each breach with file, line and remedy. It never builds or runs what it reads.
package arch

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the path that the repository's own imports begin with.
const module = "github.com/stillwire/stillwire"

// File is one parsed Go file.
type File struct {
	Path  string // slash-separated, from the repository's root
	Lines int
	fset  *token.FileSet
	ast   *ast.File
	bytes []byte
}

// Parse reads one Go file. Path is from the repository's root.
func Parse(path string, src []byte) (*File, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{Path: path, Lines: bytes.Count(src, []byte("\n")), fset: fset, ast: tree, bytes: src}, nil
}

// Read parses every Go file below root, but for testdata and folders that begin with a dot.
func Read(root string) (files []*File, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && name != root && (base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".")) {
			return filepath.SkipDir
		}
		if entry.IsDir() || path.Ext(base) != ".go" {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := Parse(filepath.ToSlash(rel), src)
		files = append(files, f)
		return err
	})
	return files, err
}

// Dir is the folder of the file, which is also its package's path below the module.
func (f *File) Dir() string { return path.Dir(f.Path) }

// In reports whether the file lies in one of the folders or below.
func (f *File) In(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(f.Dir(), dir) })
}

// Test reports whether the file is only built for tests.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") || f.In("test") }

// Product reports whether the file is part of what is shipped.
func (f *File) Product() bool { return !f.Test() && !f.In("examples") }

// Library reports whether other programs may link the file.
func (f *File) Library() bool { return !f.Test() && f.In("device", "netstack", "mesh") }

// Imports returns the import paths, each with its line.
func (f *File) imports() map[string]int {
	paths := make(map[string]int)
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths[p] = f.line(spec)
		}
	}
	return paths
}

func (f *File) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// within reports whether the slash-separated name is dir or lies below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// Breach is one place where a rule is broken.
type Breach struct {
	Path   string
	Line   int
	Reason string // what is wrong and what to do
}

func (b Breach) String() string { return fmt.Sprintf("%s:%d: %s", b.Path, b.Line, b.Reason) }

// Check applies every rule to every file.
func Check(files []*File) (breaches []Breach) {
	for _, f := range files {
		for _, rule := range rules() {
			breaches = append(breaches, rule(f)...)
		}
	}
	breaches = append(breaches, assignedGlobals(files)...)
	breaches = append(breaches, packageDocs(files)...)
	slices.SortFunc(breaches, func(a, b Breach) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), strings.Compare(a.Reason, b.Reason))
	})
	return breaches
}

func rules() []func(*File) []Breach {
	return []func(*File) []Breach{imports, calls, lengths, globals, openWork, docs}
}
