package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRepositoryObeysTheDesign(t *testing.T) {
	files, err := Read(repository(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("read %d Go files: is this the repository?", len(files))
	}
	for _, b := range Check(files) {
		t.Error(b)
	}
}

// repository returns the folder two above this one, which holds the product's go.mod.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("%s is not the root of %s: %v", root, module, err)
	}
	return root
}

func TestRulesNameTheBreachAndItsRemedy(t *testing.T) {
	for _, tt := range []struct {
		name, path, src string
		want            []string
	}{
		{"device is a leaf", "device/a.go", `import _ "github.com/stillwire/stillwire/netstack"`,
			[]string{"device/a.go:4: imports netstack: device may import of this repository only device"}},
		{"mesh imports device alone", "mesh/a.go", `import _ "github.com/stillwire/stillwire/netstack"`,
			[]string{"mesh/a.go:4: imports netstack: mesh may import of this repository only mesh, device"}},
		{"mesh never imports its children", "mesh/a.go", `import _ "github.com/stillwire/stillwire/mesh/kube"`,
			[]string{"mesh/a.go:4: imports mesh/kube: what is below mesh imports mesh, never the reverse"}},
		{"children import mesh", "mesh/kube/a.go", `import _ "github.com/stillwire/stillwire/mesh"`, nil},
		{"proxies know neither device nor stack", "netstack/proxy/a.go", `import _ "github.com/stillwire/stillwire/device"`,
			[]string{"netstack/proxy/a.go:4: imports device: netstack/proxy may import of this repository only netstack/proxy"}},
		{"nobody imports cmd", "netstack/a.go", `import _ "github.com/stillwire/stillwire/cmd/stillwire"`,
			[]string{"netstack/a.go:4: imports cmd/stillwire: netstack may import of this repository only netstack, device"}},
		{"test helpers stay out of the product", "netstack/a.go", `import _ "github.com/stillwire/stillwire/device/devicetest"`,
			[]string{"netstack/a.go:4: imports device/devicetest: packages for tests stay out of the product"}},
		{"test helpers serve tests", "netstack/a_test.go", `import _ "github.com/stillwire/stillwire/device/devicetest"`, nil},
		{"gVisor only in netstack", "cmd/stillwire/a.go", `import _ "gvisor.dev/gvisor/pkg/tcpip"`,
			[]string{"cmd/stillwire/a.go:4: imports gvisor.dev/gvisor/pkg/tcpip: only netstack may"}},
		{"client-go only in mesh/kube", "mesh/a.go", `import _ "k8s.io/client-go/rest"`,
			[]string{"mesh/a.go:4: imports k8s.io/client-go/rest: only mesh/kube may"}},
		{"netlink only in mesh/host", "device/a.go", `import _ "github.com/vishvananda/netlink"`,
			[]string{"device/a.go:4: imports github.com/vishvananda/netlink: only mesh/host may"}},
		{"no process is started", "cmd/stillwire/a.go", `import _ "os/exec"`,
			[]string{"cmd/stillwire/a.go:4: imports os/exec: the product starts no process, use netlink, /proc or Go"}},
		{"tests may start processes", "device/a_test.go", `import _ "os/exec"`, nil},
		{"no sleep, under any name", "test/bench/a.go", `import clock "time"; func f() { clock.` + `Sleep(1) }`,
			[]string{"test/bench/a.go:4: clock." + "Sleep: wait for the condition, with testing/synctest where it is time"}},
		{"a method called alike is no sleep", "device/a.go", `type c struct{}; func (c) Wait() {}; func f(time c) { time.Wait() }`, nil},
		{"no test skips", "device/a_test.go", `import "testing"; func f(t *testing.T) { t.` + `Skip("no") }`,
			[]string{"device/a_test.go:4: t." + "Skip: no test skips, let it fail and say what is missing"}},
		{"only cmd ends the process", "device/a.go", `import "os"; func f() { os.Exit(1) }`,
			[]string{"device/a.go:4: os.Exit: return an error, only cmd ends the process"}},
		{"cmd ends the process", "cmd/stillwire/a.go", `import "os"; func f() { os.Exit(1) }`, nil},
		{"signals belong to cmd", "netstack/a.go", `import "os/signal"; func f() { signal.Notify(nil) }`,
			[]string{"netstack/a.go:4: signal.Notify: signals belong to cmd"}},
		{"no logger is imposed", "mesh/a.go", `import "log"; func f() { log.Fatal() }`,
			[]string{"mesh/a.go:4: log.Fatal: log to the zerolog.Logger of the Options"}},
		{"no init", "device/a.go", `func init() {}`,
			[]string{"device/a.go:4: func init: no work at import, do it in a constructor"}},
		{"no global state", "device/a.go", "var cache map[string]int\nvar pool = sync.Pool{}\nvar n = load()",
			[]string{
				"device/a.go:4: var cache is global state: keep it in a value that a caller owns",
				"device/a.go:5: var pool is global state: keep it in a value that a caller owns",
				"device/a.go:6: var n is global state: keep it in a value that a caller owns",
			}},
		{"constants that Go cannot write", "device/a.go", "var errA = errors.New(\"a\")\nvar table = map[string]int{}\nvar longer = append([]int{1}, more...)\nvar _ fmt.Stringer = x{}\n//go:embed a\nvar text string", nil},
		{"a table that changes is state", "device/a.go", "var table = map[string]int{}\nfunc f() { table[\"a\"]++ }\nfunc g() { table := 1; table = 2; _ = table }",
			[]string{"device/a.go:5: assigns to the package-level table: keep what changes in a value that a caller owns"}},
		{"long function", "cmd/stillwire/a.go", "func f() {" + strings.Repeat("\n", 80) + "}",
			[]string{"cmd/stillwire/a.go:4: func f has 81 lines, more than 80: split it"}},
		{"long file", "cmd/stillwire/a.go", strings.Repeat("// line\n", 600),
			[]string{"cmd/stillwire/a.go:604: 604 lines are more than 600: a file tells one story, split it"}},
		{"long test", "cmd/stillwire/a_test.go", strings.Repeat("// line\n", 600), nil},
		{"work left open", "cmd/stillwire/a.go", "// TO" + "DO later",
			[]string{"cmd/stillwire/a.go:4: TO" + "DO: finish it or take it out"}},
		{"exported names are explained", "device/a.go", "func F() {}\ntype T struct{}\nfunc (T) String() string { return \"\" }\nfunc (T) Do() {}\nconst C = 1",
			[]string{
				"device/a.go:4: func F is exported and has no comment",
				"device/a.go:5: type T is exported and has no comment",
				"device/a.go:7: func Do is exported and has no comment",
				"device/a.go:8: C is exported and has no comment",
			}},
		{"names from net, not netip", "device/a.go", `import "net"; func f() { net.ParseIP("") }`,
			[]string{"device/a.go:4: net.ParseIP: parse with net/netip"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, check(t, tt.path, "// Package a is a sample.\npackage a\n\n"+tt.src+"\n")); diff != "" {
				t.Errorf("breaches (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPackageWithoutCommentIsNamed(t *testing.T) {
	want := []string{"device/a.go:1: package device has no package comment: say what it owns and what it never does"}
	if diff := cmp.Diff(want, check(t, "device/a.go", "package device\n")); diff != "" {
		t.Errorf("breaches (-want +got):\n%s", diff)
	}
}

func check(t *testing.T, path, src string) (got []string) {
	t.Helper()
	f, err := Parse(path, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range Check([]*File{f}) {
		got = append(got, b.String())
	}
	return got
}
