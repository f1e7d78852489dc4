package device

import "golang.zx2c4.com/wireguard/tun"

// ownedTUN keeps a TUN's up and down from wireguard-go, which would open its UDP port before
// it is configured, and throw away every session when somebody sets the link down and up.
type ownedTUN struct {
	tun.Device
	events chan tun.Event
}

func newOwnedTUN(t tun.Device) *ownedTUN { return &ownedTUN{t, make(chan tun.Event)} }

// Events gives the events that forward lets pass.
func (t *ownedTUN) Events() <-chan tun.Event { return t.events }

// forward passes on changes of the MTU until the TUN is closed. wireguard-go reads for as long.
func (t *ownedTUN) forward() {
	defer close(t.events)
	for e := range t.Device.Events() {
		if e &= tun.EventMTUUpdate; e != 0 {
			t.events <- e
		}
	}
}
