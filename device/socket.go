package device

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// UAPIDir is the folder in which wg(8) looks for sockets.
const UAPIDir = "/var/run/wireguard"

const (
	uapiLineLimit = 4 << 10          // bytes of one line
	uapiLineCost  = 64               // bytes of memory for one more line, beside its own
	uapiBodyLimit = 128 << 20        // bytes of memory for a request; 65,536 peers with ten prefixes take 100 MB
	uapiTimeout   = 10 * time.Second // for a client to send the rest of a request, and to read the answer
)

// uapiListeners are the sockets of a device and the clients on them.
type uapiListeners struct {
	mu     sync.Mutex
	closed bool
	open   map[interface{ Close() error }]bool
}

// add reports whether c may be used; a closed device takes no more.
func (l *uapiListeners) add(c interface{ Close() error }) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.open == nil {
		l.open = make(map[interface{ Close() error }]bool)
	}
	l.open[c] = true
	return true
}

func (l *uapiListeners) remove(c interface{ Close() error }) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	c.Close()
}

func (l *uapiListeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		c.Close()
	}
}

// ListenUAPI serves the WireGuard configuration protocol on dir/NAME.sock, so that wg show,
// wg set and wg syncconf work. "" is UAPIDir. The socket has mode 0600, a folder that is
// made 0700. Keys are told to this process's user and to root only. A change made there is
// made as Apply makes it, by the least operations, and told to Options.OnChange. See
// https://www.wireguard.com/xplatform/.
func (d *Device) ListenUAPI(dir string) error {
	if dir == "" {
		dir = UAPIDir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("UAPI socket: %w", err)
	}
	path := filepath.Join(dir, d.Name()+".sock")
	l, err := listenUnix(path)
	if err != nil {
		return fmt.Errorf("UAPI socket: %w", err)
	}
	if !d.uapi.add(l) {
		l.Close()
		return ErrClosed
	}
	d.done.Go(func() { d.serveUAPI(l) })
	return nil
}

// listenUnix takes over a socket file that nobody serves any more.
func listenUnix(path string) (*net.UnixListener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("%s: another process serves it", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		os.Remove(path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (d *Device) serveUAPI(l *net.UnixListener) {
	var clients sync.WaitGroup
	defer clients.Wait()
	defer d.uapi.remove(l)
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if !d.uapi.add(c) {
			c.Close()
			return
		}
		clients.Go(func() {
			defer d.uapi.remove(c)
			d.converse(c, peerIsOwner(c))
		})
	}
}

// converse serves one client. What the device takes for its part is not the client's fault, so
// the time to read the answer begins when there is one.
func (d *Device) converse(c net.Conn, owner bool) {
	r := bufio.NewReaderSize(c, uapiLineLimit)
	for {
		c.SetReadDeadline(time.Time{}) // wg(8) keeps no connection, others may
		first, err := readUAPILine(r)
		if err != nil {
			return
		}
		c.SetReadDeadline(time.Now().Add(uapiTimeout))
		body, err := readUAPIBody(r)
		var answer []byte
		switch {
		case err == nil:
			answer = d.answerUAPI(first, body, owner)
		case errors.Is(err, errBodyLimit):
			answer = d.endUAPI(nil, err)
		default:
			return
		}
		c.SetWriteDeadline(time.Now().Add(uapiTimeout))
		if _, werr := c.Write(answer); werr != nil || err != nil {
			return
		}
	}
}

// errBodyLimit is the answer to a request that no device could obey.
var errBodyLimit = fmt.Errorf("UAPI request of more than %d MiB: %w", uapiBodyLimit>>20, syscall.EMSGSIZE)

// readUAPIBody reads lines until the empty one. It counts what they cost to keep.
func readUAPIBody(r *bufio.Reader) (body []string, err error) {
	for cost := 0; ; {
		line, err := readUAPILine(r)
		if err != nil || line == "" {
			return body, err
		}
		if cost += len(line) + uapiLineCost; cost > uapiBodyLimit {
			return nil, errBodyLimit
		}
		body = append(body, line)
	}
}

func readUAPILine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(line, []byte("\n"))), nil
}

// answerUAPI is one request and its answer, which ends with errno and an empty line.
func (d *Device) answerUAPI(op string, body []string, owner bool) []byte {
	var out []byte
	var err error
	switch {
	case op == "get=1" && len(body) == 0:
		out, err = d.uapiGet(owner)
	case op == "set=1":
		err = d.uapiSet(body)
	default:
		err = errors.New("not a UAPI operation")
	}
	return d.endUAPI(out, err)
}

func (d *Device) endUAPI(out []byte, err error) []byte {
	errno := 0
	if err != nil {
		errno = int(syscall.EINVAL)
		var sys syscall.Errno
		if errors.As(err, &sys) {
			errno = int(sys)
		}
		d.log.Warn().Err(err).Msg("UAPI request refused")
	}
	return fmt.Appendf(out, "errno=%d\n\n", -errno)
}

func (d *Device) uapiSet(body []string) error {
	if err := d.acquire(d.ctx); err != nil {
		return err
	}
	want, err := editConfig(d.model.config(), body)
	if err == nil {
		want, err = d.complete(want)
	}
	var changes []Change
	if err == nil {
		d.forgetPort(want)
		ops := Diff(d.model.state(), want)
		if d.up && want.ListenPort == 0 {
			ops = slices.Insert(ops, 0, anotherPort(d.model.listenPort))
		}
		changes, err = d.execute(ops, true)
	}
	d.release()
	for i := range changes {
		changes[i].Cause = "UAPI socket"
	}
	d.tell(changes)
	return err
}

// uapiGet prints the device as wireguard-go would, in the order of keys.
func (d *Device) uapiGet(owner bool) ([]byte, error) {
	if err := d.acquire(d.ctx); err != nil {
		return nil, err
	}
	defer d.release()
	s, err := d.observe()
	if err != nil {
		return nil, err
	}
	var b []byte
	if owner && !d.model.privateKey.IsZero() {
		b = appendSecret(b, "private_key", d.model.privateKey.secret)
	}
	if s.ListenPort != 0 {
		b = fmt.Appendf(b, "listen_port=%d\n", s.ListenPort)
	}
	if s.FwMark != 0 {
		b = fmt.Appendf(b, "fwmark=%d\n", s.FwMark)
	}
	for _, p := range s.Peers {
		b = p.appendUAPI(b, owner)
	}
	return b, nil
}

func (p *PeerState) appendUAPI(b []byte, owner bool) []byte {
	b = fmt.Appendf(b, "public_key=%s\n", p.PublicKey.Hex())
	if owner {
		b = appendSecret(b, "preshared_key", p.PresharedKey.secret)
	}
	b = append(b, "protocol_version=1\n"...)
	b = appendEndpoint(b, p.Endpoint)
	var sec, nsec int64
	if !p.LastHandshake.IsZero() {
		sec, nsec = p.LastHandshake.Unix(), int64(p.LastHandshake.Nanosecond())
	}
	b = fmt.Appendf(b, "last_handshake_time_sec=%d\nlast_handshake_time_nsec=%d\n", sec, nsec)
	b = fmt.Appendf(b, "tx_bytes=%d\nrx_bytes=%d\n", p.TransmitBytes, p.ReceiveBytes)
	b = appendKeepalive(b, p.PersistentKeepalive)
	for _, prefix := range p.AllowedIPs {
		b = fmt.Appendf(b, "allowed_ip=%s\n", prefix)
	}
	return b
}
