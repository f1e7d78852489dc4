//go:build linux

package nodes

import "runtime"

// onThread runs enter and then f on a thread of their own, which ends with them.
func onThread(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		err := enter()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
