package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// Rename gives the device another name: its UAPI sockets move to it, and the file of saved
// endpoints. Who talks on a socket goes on. It fails as a whole, such as when another process
// serves a socket of that name.
func (d *Device) Rename(name string) error {
	if err := d.acquire(context.Background()); err != nil {
		return err
	}
	defer d.release()
	old := d.Name()
	if name == old {
		return nil
	}
	var fresh, stale []*net.UnixListener
	for _, l := range d.uapi.listeners() {
		moved, err := listenUnix(filepath.Join(filepath.Dir(l.Addr().String()), name+".sock"))
		if err != nil {
			for _, l := range fresh {
				l.Close()
			}
			return fmt.Errorf("rename %s to %s: UAPI socket: %w", old, name, err)
		}
		fresh, stale = append(fresh, moved), append(stale, l)
	}
	if d.saveDir != "" {
		err := os.Rename(savedPath(d.saveDir, old), savedPath(d.saveDir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			for _, l := range fresh {
				l.Close()
			}
			return fmt.Errorf("rename %s to %s: %w", old, name, err)
		}
	}
	d.name.Store(&name)
	for i, l := range fresh {
		if d.uapi.add(l) {
			d.done.Go(func() { d.serveUAPI(l) })
		} else {
			l.Close()
		}
		d.uapi.remove(stale[i])
	}
	return nil
}

// listeners returns those that are open.
func (l *uapiListeners) listeners() (out []*net.UnixListener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if ln, ok := c.(*net.UnixListener); ok {
			out = append(out, ln)
		}
	}
	return out
}

// savePath is where endpoints are kept, where they are.
func (d *Device) savePath() string { return savedPath(d.saveDir, d.Name()) }
