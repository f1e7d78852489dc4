package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// slurp reads a regular file of at most limit bytes. It never waits, as a FIFO would have it.
func slurp(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, info, errors.New("it is no regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return text, info, err
}

// readAside returns the text of a small file that this one names, without blanks around it.
func (r *reader) readAside(path string) (string, fs.FileMode, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	text, info, err := slurp(path, maxKeyFile)
	r.asides = append(r.asides, aside{path, info})
	if err != nil {
		return "", 0, err
	}
	return strings.TrimSpace(string(text)), info.Mode().Perm(), nil
}

// cause is an error of the file system without the path, which stands beside it.
func cause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
