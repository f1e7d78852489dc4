package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"
)

type versionCommand struct {
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Format: text or json."`
}

func (c *versionCommand) Run(p *program) error {
	build, _ := debug.ReadBuildInfo()
	v := versionsOf(build)
	if c.Output == "json" {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		return p.println(string(b))
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"stillwire", v.Stillwire}, {"commit", v.Commit}, {"date", v.Date}, {"go", v.Go},
		{"platform", v.Platform}, {"wireguard-go", v.WireGuardGo}, {"gvisor", v.GVisor},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	return w.Flush()
}

// versions says what a binary was made of.
type versions struct {
	Stillwire   string `json:"stillwire"`    // module version, "(devel)" outside a release
	Commit      string `json:"commit"`       // with -dirty when files were changed after it
	Date        string `json:"date"`         // of the commit, RFC 3339
	Go          string `json:"go"`           // of the compiler
	Platform    string `json:"platform"`     // as linux/amd64
	WireGuardGo string `json:"wireguard-go"` // golang.zx2c4.com/wireguard
	GVisor      string `json:"gvisor"`       // gvisor.dev/gvisor
}

// unknown stands for what the build did not record.
const unknown = "unknown"

// versionsOf reads what the Go toolchain has written into the binary. nil: nothing.
func versionsOf(build *debug.BuildInfo) versions {
	v := versions{
		Stillwire: unknown, Commit: unknown, Date: unknown, WireGuardGo: unknown, GVisor: unknown,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build == nil {
		return v
	}
	v.Stillwire = build.Main.Version
	dirty := ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.time":
			v.Date = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	v.Commit += dirty
	for _, module := range build.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		switch module.Path {
		case "golang.zx2c4.com/wireguard":
			v.WireGuardGo = module.Version
		case "gvisor.dev/gvisor":
			v.GVisor = module.Version
		}
	}
	return v
}
