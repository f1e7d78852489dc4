package gateway

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// readyDir makes a folder that the gateway writes to, as 0700, and makes sure that it can.
func readyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return mayWrite(dir)
}

// couldReady says whether readyDir would do, and makes nothing.
func couldReady(dir string) error {
	for at := absolute(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return syscall.ENOTDIR
		}
		return mayWrite(at)
	}
}

// dirs tries the folders of a Spec, of which each must do for every tunnel.
func (s Spec) dirs(try func(dir string) error) error {
	var errs []error
	for _, setting := range []struct{ field, dir string }{{"stateDir", s.StateDir}, {"uapiDir", s.UAPIDir}} {
		if setting.dir == "" {
			continue
		}
		if err := try(setting.dir); err != nil {
			at := origin{s.Where[setting.field], setting.field}
			if isFlag(at.source) {
				at = origin{field: at.source}
			}
			errs = append(errs, at.refuseFor(setting.dir, whyNoDir(err), err))
		}
	}
	return errors.Join(errs...)
}

// whyNoDir says in words what the system says in numbers, and what to do.
func whyNoDir(err error) string {
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return "is no folder and cannot be made one: choose another path"
	case errors.Is(err, fs.ErrPermission):
		return "may not be made or written to by this user: choose a folder that may, or give this one to the user"
	case errors.Is(err, syscall.EROFS):
		return "is on a read-only file system: choose a folder that can be written to"
	}
	return "cannot be used: " + reasonOf(err)
}

// wants finds what the system would refuse of a Spec now, as far as that can be told without
// opening anything: folders and sockets. A port may be free later.
func (s Spec) wants() (errs []error) {
	if err := s.dirs(couldReady); err != nil {
		errs = append(errs, flat([]error{err})...)
	}
	for _, service := range s.Services {
		if err := couldListen(service.Listen); err != nil && service.Kind != Publish {
			errs = append(errs, notOpen(service.Source, service.String(), err))
		}
	}
	if err := couldListen(s.Admin.Listen); err != nil {
		errs = append(errs, notOpen(s.Admin.Source, "admin "+s.Admin.Listen.String(), err))
	}
	return errs
}

// couldListen looks at the place of a unix socket. One that is there may be in use by the very
// gateway that the question is about.
func couldListen(l Listen) error {
	if l.Network != "unix" {
		return nil
	}
	info, err := os.Lstat(l.Path)
	if err == nil && info.Mode()&fs.ModeSocket == 0 {
		return errNoSocket
	}
	dir := filepath.Dir(l.Path)
	if _, err := os.Stat(dir); err != nil {
		return whyNotOpen(err)
	}
	if err := mayWrite(dir); err != nil {
		return whyNotOpen(err)
	}
	return nil
}
