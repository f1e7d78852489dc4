//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Image is one static program and nothing else, as FROM scratch makes it.
type Image struct {
	Name    string // such as stillwire:latest
	Program string // path on this machine; in the image it lies in /, and is the entry point
}

// ToolImage is the image of the program in the folder pod, which see.
const ToolImage = "pod:latest"

// pauseImage holds the same program. The container of a pod's own namespaces runs it without
// arguments, and then it waits.
const pauseImage = "pause:latest"

// write writes the image to the path in the form of docker save, which ctr imports.
func (i Image) write(path string) error {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return err
	}
	name := filepath.Base(i.Program)
	layer, err := archive(file{name, 0o755, program})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + name}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "Layers": []string{"layer.tar"}, "RepoTags": []string{"docker.io/library/" + i.Name},
	}})
	if err != nil {
		return err
	}
	whole, err := archive(file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer}, file{"manifest.json", 0o644, manifest})
	if err != nil {
		return err
	}
	return os.WriteFile(path, whole, 0o600)
}

type file struct {
	name    string
	mode    int64
	content []byte
}

func archive(files ...file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
