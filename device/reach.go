package device

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	wg "golang.zx2c4.com/wireguard/device"
)

// HandshakeError tells why there is no session with a peer.
type HandshakeError struct {
	Peer     PublicKey
	Name     string
	Endpoint netip.AddrPort // where it was tried; invalid: nowhere known
	Problem  string         // of the endpoint's name; "": none
	Tries    int            // handshake messages sent without answer
	Err      error          // why waiting ended: the context's error, or a send error
}

func (e *HandshakeError) Error() string {
	peer := PeerConfig{PublicKey: e.Peer, Name: e.Name}
	switch {
	case e.Problem != "":
		return fmt.Sprintf("no handshake with peer %s: %s: %v", peer.label(), e.Problem, e.Err)
	case !e.Endpoint.IsValid():
		return fmt.Sprintf("no handshake with peer %s: it has no endpoint and has not spoken first: %v", peer.label(), e.Err)
	}
	return fmt.Sprintf("no handshake with peer %s at %s after %d tries: check that UDP passes and that each side has the other's public key: %v", peer.label(), e.Endpoint, e.Tries, e.Err)
}

// Unwrap gives the context's error.
func (e *HandshakeError) Unwrap() error { return e.Err }

// Reach returns once there is a session with the peer that owns dst. When there is none it
// starts a handshake and waits for it, until ctx ends: then the error is a *HandshakeError.
// It is ErrNoPeer when no allowed IP covers dst.
func (d *Device) Reach(ctx context.Context, dst netip.Addr) error {
	p := d.model.routes.lookup(dst.Unmap())
	if p == nil {
		return fmt.Errorf("%s: %w", dst, ErrNoPeer)
	}
	if d.tracker.get(p.wg).alive(time.Now()) {
		return nil
	}
	d.tracker.await(p.wg)
	defer d.tracker.leave(p.wg)
	again := time.NewTimer(d.call(p.wg))
	defer again.Stop()
	for {
		tr := d.tracker.get(p.wg)
		if tr.alive(time.Now()) {
			return nil
		}
		select {
		case <-tr.changed:
		case <-again.C:
			again.Reset(d.call(p.wg))
		case <-ctx.Done():
			return p.handshakeError(tr.tries, context.Cause(ctx))
		case <-d.ctx.Done():
			return ErrClosed
		}
	}
}

// call has somebody waiting for an answer, so it does not wait out wireguard-go's five seconds
// when the last initiation is older than the patience with the peer: the far side may have been
// late by a moment. It returns when to call again.
func (d *Device) call(p *wg.Peer) time.Duration {
	due, wait := d.tracker.claim(p)
	switch due {
	case callFirst:
		p.SendHandshakeInitiation(false)
	case callAnew:
		initiateAnew(p)
	}
	return wait + settle
}

// Renew starts a handshake with the peer that owns dst although its session looks well, at
// most one every 5 s. A far side that has restarted answers nothing else: on its own,
// WireGuard would find out after 15 s.
func (d *Device) Renew(dst netip.Addr) error {
	p := d.model.routes.lookup(dst.Unmap())
	if p == nil {
		return fmt.Errorf("%s: %w", dst, ErrNoPeer)
	}
	return p.wg.SendHandshakeInitiation(false)
}

// handshakeError takes no lock: a change of ten thousand peers may hold it for seconds.
func (p *peer) handshakeError(tries int, cause error) error {
	s := p.shown.Load()
	return &HandshakeError{Peer: p.key, Name: s.name, Endpoint: s.endpoint, Problem: s.problem, Tries: tries, Err: cause}
}
