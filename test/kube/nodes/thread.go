//go:build linux

package nodes

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs enter and then f on a thread of their own, which ends with them.
func onThread(enter, f func() error) error {
	done := make(chan error, 1)
	goThread(func() {
		err := enter()
		if err == nil {
			err = f()
		}
		done <- err
	})
	return <-done
}

// goThread runs f in a goroutine with a thread of its own, which ends with it. That is not so for
// the main thread, which the runtime keeps, with whatever namespaces and cgroup it is in.
func goThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // and never unlock: this ends the thread
			return
		}
		// While this one holds the main thread, the next one has another.
		elsewhere := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(elsewhere)
			f()
		}()
		<-elsewhere
		runtime.UnlockOSThread()
	}()
}
