package device

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func openNothing(path string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("must not be opened")}
}

func emptyEnv(string) (string, bool) { return "", false }

// fuzzOptions is a small world of files and variables that a file may name.
func fuzzOptions() ParseOptions {
	files := fstest.MapFS{
		"k":  {Data: []byte("QCcT4LE4CTnerjgpVNNW8HWchJoLalUnGrigJdqqL2w=\n"), Mode: 0o644},
		"wg": {Data: []byte("[Interface]\nAddress=10.0.0.1\n[Peer]\nPublicKey=eGvhMxJCQ+C6crFwQmBhUZ28iZqOb35Hc3pryv21NGo=\n[http]\na=b\n"), Mode: 0o600},
	}
	env := map[string]string{
		"A": "10.0.0.1, fd00::1",
		"D": "10.0.0.53, a.example",
		"K": "QCcT4LE4CTnerjgpVNNW8HWchJoLalUnGrigJdqqL2w=",
		"P": "$` '\"#;\\",
		"E": "[fe80::1%a#b]:1",
	}
	return ParseOptions{
		Open:      func(path string) (fs.File, error) { return files.Open(filepath.ToSlash(path)) },
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"read/*.conf", "refused/*.conf", "include/*.conf"} {
		files, err := filepath.Glob("testdata/wgquick/" + pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte("WGConfig=wg\n[Interface]\nPrivateKeyFile=k\nAddress=$A\nDNS=$D\n[Peer]\nPublicKey=$K\nEndpoint=$E\n[Socks5]\nPassword=$P\nx=$$y\n"))
	f.Add([]byte("[peer]#a\npublickey=eGvhMxJCQ+C6crFwQmBhUZ28iZqOb35Hc3pryv21NGo=\n#Name=b\n[http]\na=`'\nb=\"\"\"x\"\"\"\nc='\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("wg0.conf", bytes.NewReader(text), fuzzOptions())
		if err != nil {
			if file != nil || err.Error() == "" {
				t.Fatalf("got %v with %q", file, err)
			}
			return
		}
		if _, err := file.Config.Normalized(); err != nil {
			t.Fatalf("the Config read cannot be obeyed: %v", err)
		}
		checkRoundTrip(t, file)
	})
}
