package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// A ban is a set of names of one package that some files must not use. The package is
// matched by its import path, whatever a file calls it.
type ban struct {
	path   string           // import path
	names  []string         // functions and variables of the package
	banned func(*File) bool // the files that must not use them
	remedy string
}

var bans = []ban{
	{"time", []string{"Sleep"}, always, "wait for the condition, with testing/synctest where it is time"},
	{"os", []string{"Exit"}, (*File).Library, "return an error, only cmd ends the process"},
	{"os", []string{"StartProcess"}, (*File).Product, "the product starts no process"},
	{"syscall", []string{"Exec", "ForkExec", "StartProcess"}, (*File).Product, "the product starts no process"},
	{"golang.org/x/sys/unix", []string{"Exec"}, (*File).Product, "the product starts no process"},
	{"os/signal", []string{"Notify", "NotifyContext", "Ignore", "Reset"}, (*File).Library, "signals belong to cmd"},
	{"log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln", "Print", "Printf", "Println", "Default", "SetOutput"}, (*File).Library, "log to the zerolog.Logger of the Options"},
	{"fmt", []string{"Print", "Printf", "Println"}, (*File).Library, "a library writes to what it is handed"},
	{"os", []string{"Stdout", "Stderr", "Stdin"}, (*File).Library, "a library writes to what it is handed"},
	{"github.com/rs/zerolog/log", []string{"Logger", "Info", "Error", "Warn", "Debug", "Fatal", "Panic", "Print", "Printf"}, always, "pass a zerolog.Logger by value"},
	{"net", []string{"ParseIP", "ParseCIDR"}, (*File).Product, "parse with net/netip"},
	{"net/http", []string{"ListenAndServe", "ListenAndServeTLS", "HandleFunc", "Handle", "DefaultClient", "DefaultServeMux", "Get", "Post", "Head"}, (*File).Product, "use a server or client of one's own, with deadlines"},
	{"net/http/pprof", []string{"Index", "Profile", "Handler"}, (*File).Product, "no profiler in what is shipped"},
}

func always(*File) bool { return true }

func calls(f *File) (breaches []Breach) {
	names := f.importNames()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		if f.Test() && isSkip(sel.Sel.Name) && isTestingName(pkg.Name) {
			breaches = append(breaches, Breach{f.Path, f.line(sel), fmt.Sprintf("%s.%s: no test skips, let it fail and say what is missing", pkg.Name, sel.Sel.Name)})
		}
		for _, b := range bans {
			if names[pkg.Name] == b.path && slices.Contains(b.names, sel.Sel.Name) && b.banned(f) {
				breaches = append(breaches, Breach{f.Path, f.line(sel), fmt.Sprintf("%s.%s: %s", pkg.Name, sel.Sel.Name, b.remedy)})
			}
		}
		return true
	})
	return breaches
}

// importNames maps what the file calls each package to the package's path.
func (f *File) importNames() map[string]string {
	names := make(map[string]string)
	for _, spec := range f.ast.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		name := imported[strings.LastIndexByte(imported, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	return names
}

func isSkip(name string) bool { return name == "Skip" || name == "Skipf" || name == "SkipNow" }

func isTestingName(name string) bool {
	return slices.Contains([]string{"t", "b", "f", "tb", "rt", "st"}, name)
}
