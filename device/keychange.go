package device

import (
	"encoding/binary"
	"strings"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"
	wg "golang.zx2c4.com/wireguard/device"
)

// ipcSet writes to wireguard-go. The lock is held.
func (d *Device) ipcSet(text string) error {
	switch {
	case text == "":
		return nil
	case strings.Contains(text, "private_key="):
		return d.changeKey(text)
	}
	return d.wg.IpcSet(text)
}

// changeKey writes a text that changes the private key.
//
// wireguard-go locks its identity and then the handshake of each peer when its key changes, and the
// other way round when a response to a handshake comes in: the two may wait for each other for ever,
// and all of the device with them. So no response is let in meanwhile, and the handshakes that one
// could answer are given up first, which waits for a response that is being taken. The change of the
// key voids both, and all sessions, in any case.
func (d *Device) changeKey(text string) error {
	d.bind.deaf.Store(true)
	defer d.bind.deaf.Store(false)
	for key := range d.model.peers {
		if p := d.wg.LookupPeer(wg.NoisePublicKey(key)); p != nil {
			p.ExpireCurrentKeypairs()
		}
	}
	return d.wg.IpcSet(text)
}

// portBind notes which port the bind really has, and can be deaf to responses.
type portBind struct {
	conn.Bind
	port atomic.Uint32
	deaf atomic.Bool
}

func (b *portBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, actual, err := b.Bind.Open(port)
	if err == nil {
		b.port.Store(uint32(actual))
	}
	for i, receive := range fns {
		fns[i] = func(packets [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
			n, err := receive(packets, sizes, from)
			if b.deaf.Load() {
				dropResponses(packets[:n], sizes)
			}
			return n, err
		}
	}
	return fns, actual, err
}

// dropResponses makes each response to a handshake a packet of no length, which wireguard-go passes
// over.
func dropResponses(packets [][]byte, sizes []int) {
	for i, p := range packets {
		if sizes[i] == wg.MessageResponseSize && binary.LittleEndian.Uint32(p) == wg.MessageResponseType {
			sizes[i] = 0
		}
	}
}

func (b *portBind) opened() uint16 { return uint16(b.port.Load()) }
