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

// openRegular opens a regular file. It never waits, as a FIFO would have it.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// slurp reads a regular file of at most limit bytes.
func slurp(path string, limit int64) ([]byte, fs.FileInfo, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return text, info, err
}

// tooOpen reports whether more people than the owner and a group may read a file with a key,
// or others than the owner may write it. Reading by a group is how Kubernetes gives a Secret to
// a process that is not root.
func tooOpen(mode fs.FileMode) bool { return mode&0o027 != 0 }

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
