package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogIsJSONUnlessPeopleRead(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tt := range []struct {
		name, format, want string
	}{
		{"auto, no terminal", "auto", `{"level":"info","peer":"abc","time":`},
		{"json", "json", `{"level":"info","peer":"abc","time":`},
		{"console, no colours in a file", "console", " INF peer added peer=abc\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			log := logFlags{LogLevel: "info", LogFormat: tt.format}.logger(&out)
			log.Debug().Msg("not shown")
			log.Info().Str("peer", "abc").Msg("peer added")
			if !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(), "not shown") {
				t.Errorf("log is %q, want %q in it", out.String(), tt.want)
			}
		})
	}
	if (logFlags{LogFormat: "auto"}).console(file) {
		t.Error("a file is taken for a terminal")
	}
}
