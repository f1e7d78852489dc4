package devicetest

import (
	"reflect"
	"runtime"

	wgdevice "golang.zx2c4.com/wireguard/device"
)

// Logger returns a logger for a wireguard-go device inside a synctest bubble: see the package
// comment. Messages go on to next; nil drops them.
//
// wireguard-go names each peer to its logger when it is made and when it starts, which is the
// one place where all of them can be met.
func Logger(next *wgdevice.Logger) *wgdevice.Logger {
	if next == nil {
		next = &wgdevice.Logger{Verbosef: wgdevice.DiscardLogf, Errorf: wgdevice.DiscardLogf}
	}
	return &wgdevice.Logger{
		Verbosef: func(format string, args ...any) {
			for _, a := range args {
				if p, ok := a.(*wgdevice.Peer); ok {
					dropFinalizers(p)
				}
			}
			next.Verbosef(format, args...)
		},
		Errorf: next.Errorf,
	}
}

// WrapLogger is Logger, as a method: a program that opens a device on a Bind it was given can
// ask the Bind whether it wants to see what is logged.
func (b *Bind) WrapLogger(next *wgdevice.Logger) *wgdevice.Logger { return Logger(next) }

// dropFinalizers takes the finalizers off the queues of a peer. The fields are set before
// the peer is known to anybody else and never change, so reading them is no race.
func dropFinalizers(p *wgdevice.Peer) {
	queue := reflect.ValueOf(p).Elem().FieldByName("queue")
	for _, name := range []string{"outbound", "inbound"} {
		q := queue.FieldByName(name)
		runtime.SetFinalizer(reflect.NewAt(q.Type().Elem(), q.UnsafePointer()).Interface(), nil)
	}
}
