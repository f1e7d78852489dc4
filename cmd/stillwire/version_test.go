package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVersions(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, tt := range []struct {
		name  string
		build *debug.BuildInfo
		want  versions
	}{
		{"nothing recorded", nil, versions{
			Stillwire: "unknown", Commit: "unknown", Date: "unknown", Go: runtime.Version(),
			Platform: platform, WireGuardGo: "unknown", GVisor: "unknown",
		}},
		{"a release", &debug.BuildInfo{
			Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "false"},
			},
			Deps: []*debug.Module{{Path: "golang.zx2c4.com/wireguard", Version: "v0.0.1"}, {Path: "gvisor.dev/gvisor", Version: "v0.0.2"}},
		}, versions{
			Stillwire: "v1.2.3", Commit: "0123abc", Date: "2026-01-02T03:04:05Z", Go: runtime.Version(),
			Platform: platform, WireGuardGo: "v0.0.1", GVisor: "v0.0.2",
		}},
		{"changed after the commit, a library replaced", &debug.BuildInfo{
			Main:     debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "0123abc"}},
			Deps: []*debug.Module{{
				Path: "gvisor.dev/gvisor", Version: "v0.0.2", Replace: &debug.Module{Path: "gvisor.dev/gvisor", Version: "v0.0.3"},
			}},
		}, versions{
			Stillwire: "(devel)", Commit: "0123abc-dirty", Date: "unknown", Go: runtime.Version(),
			Platform: platform, WireGuardGo: "unknown", GVisor: "v0.0.3",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, versionsOf(tt.build)); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
		})
	}
}
