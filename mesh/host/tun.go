//go:build linux

package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// TUN is a kernel TUN that outlives the process, and that may be removed and made anew under
// whoever reads it: until then reads wait and writes are lost.
type TUN struct {
	opt      Options
	batch    int
	events   chan tun.Event
	closed   chan struct{}
	closing  sync.Once
	forwards sync.WaitGroup
	plain    atomic.Bool // packets are written one by one

	mu       sync.Mutex
	current  tun.Device
	replaced chan struct{} // closed when current is no longer
}

// startMTU is that of a new TUN until the plan says otherwise: it fits any path that carries
// WireGuard over IPv6 in Ethernet.
const startMTU = 1420

// OpenTUN makes the TUN, or adopts the one that an agent before left, with its addresses and
// routes. A *BusyError tells that another process serves it. Errors say what to do, where it is
// known.
func (h *Host) OpenTUN() (tun.Device, error) {
	dev, err := h.opt.attach()
	if err != nil {
		if p, named := h.opt.problem(tunnel, err); named && p.Remedy != "" {
			err = fmt.Errorf("%w: %s", err, p.Remedy)
		}
		return nil, err
	}
	t := &TUN{
		opt: h.opt, batch: dev.BatchSize(), current: dev,
		events: make(chan tun.Event), closed: make(chan struct{}), replaced: make(chan struct{}),
	}
	t.plain.Store(h.opt.NoOffload)
	t.forwards.Go(func() { t.forward(dev) })
	h.mu.Lock()
	h.tun = t
	h.mu.Unlock()
	return t, nil
}

// makeTUN makes the TUN anew after it was removed, for whoever serves it.
func (h *Host) makeTUN() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tun == nil || h.tun.isClosed() {
		file, err := h.opt.open()
		if err != nil {
			return err
		}
		return file.Close() // it stays
	}
	dev, err := h.opt.attach()
	if err != nil {
		return err
	}
	h.tun.replace(dev)
	return nil
}

// attach opens the TUN for packets. Its MTU stays when it is there already.
func (o Options) attach() (tun.Device, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	have, err := k.readLink(o.Interface)
	if err != nil {
		return nil, err
	}
	if have.index != 0 && have.kind != kindTUN {
		return nil, o.notTUN(have.kind)
	}
	file, err := o.open()
	if err != nil {
		return nil, err
	}
	mtu := have.mtu
	if have.index == 0 {
		mtu = startMTU
		// The address that the kernel would make is of no use, and not one of the plan's.
		k.changeLink(o.Interface, func(l netlink.Link) error { return k.route.LinkSetIP6AddrGenMode(l, addrGenNone) })
	}
	dev, err := tun.CreateTUNFromFile(file, mtu)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("TUN %s: %w", o.Interface, err)
	}
	if o.NoOffload {
		err = control(file, func(fd int) error { return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0) })
		if err != nil {
			dev.Close()
			return nil, fmt.Errorf("TUN %s: turn offload off: %w", o.Interface, err)
		}
	}
	return dev, nil
}

// addrGenNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenNone = 1

// open attaches to the persistent TUN, which is made when it is not there. The flags are those
// of wireguard-go, with the header that offload needs.
func (o Options) open() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, o.noTUN(err)
	}
	request, err := unix.NewIfreq(o.Interface)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was written to it
		if errors.Is(err, unix.EBUSY) {
			return nil, holder(o.Interface)
		}
		return nil, fmt.Errorf("TUN %s: %w", o.Interface, err)
	}
	// Not before: the runtime's poller would wait for ever on a file that is no TUN yet.
	file := os.NewFile(uintptr(fd), "/dev/net/tun")
	return file, nil
}

func (o Options) noTUN(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return &problemError{"Unsupported", "no /dev/net/tun", "load the module tun, or give the container the device; without it there is the netstack mode"}
	}
	return fmt.Errorf("TUN %s: open /dev/net/tun: %w", o.Interface, err)
}

func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

// holder finds who has the TUN open, which root can see. A TUN of the same name in another
// network namespace is another one.
func holder(name string) *BusyError {
	busy := &BusyError{Interface: name}
	infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, info := range infos {
		proc := filepath.Dir(filepath.Dir(info))
		if !attachedTo(info, name) || !here(proc) {
			continue
		}
		busy.PID, _ = strconv.Atoi(filepath.Base(proc))
		comm, _ := os.ReadFile(filepath.Join(proc, "comm"))
		busy.Program = strings.TrimSpace(string(comm))
		break
	}
	return busy
}

// here reports whether a process is this one, or lives in the network namespace of this thread.
func here(proc string) bool {
	own, _ := os.Readlink("/proc/thread-self/ns/net")
	its, err := os.Readlink(filepath.Join(proc, "ns/net"))
	return err == nil && its == own || filepath.Base(proc) == strconv.Itoa(os.Getpid())
}

func attachedTo(info, name string) bool {
	f, err := os.Open(info)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if held, found := strings.CutPrefix(lines.Text(), "iff:"); found && strings.TrimSpace(held) == name {
			return true
		}
	}
	return false
}

func (t *TUN) replace(dev tun.Device) {
	t.mu.Lock()
	old, replaced := t.current, t.replaced
	t.current, t.replaced = dev, make(chan struct{})
	t.mu.Unlock()
	close(replaced)
	t.forwards.Go(func() { t.forward(dev) })
	old.Close()
}

func (t *TUN) isClosed() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

// forward passes on what one device tells, until that is closed.
func (t *TUN) forward(dev tun.Device) {
	for e := range dev.Events() {
		select {
		case t.events <- e:
		case <-t.closed:
		}
	}
}

func (t *TUN) now() (tun.Device, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current, t.replaced
}

// Read reads packets. While the TUN is gone it waits for the next.
func (t *TUN) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		dev, replaced := t.now()
		n, err := dev.Read(bufs, sizes, offset)
		if err == nil || !gone(err) {
			return n, err
		}
		select {
		case <-t.closed:
			return n, os.ErrClosed
		case <-replaced:
		}
	}
}

// gone reports whether the error is that of a TUN that was removed.
func gone(err error) bool {
	return errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EBADFD) || errors.Is(err, syscall.EIO)
}

// Write writes packets. Should the kernel ever refuse those that were put together, they are lost,
// and all that follow are written one by one.
func (t *TUN) Write(bufs [][]byte, offset int) (int, error) {
	dev, _ := t.now()
	if t.plain.Load() {
		return writeEach(dev, bufs, offset)
	}
	n, err := dev.Write(bufs, offset)
	if len(bufs) > 1 && errors.Is(err, unix.EINVAL) && !t.plain.Swap(true) {
		t.opt.Log.Warn().Err(err).Msg("the kernel refuses what offload puts together, writing packets one by one from now on")
	}
	return n, err
}

func writeEach(dev tun.Device, bufs [][]byte, offset int) (total int, errs error) {
	for i := range bufs {
		n, err := dev.Write(bufs[i:i+1], offset)
		total, errs = total+n, errors.Join(errs, err)
	}
	return total, errs
}

// Close ends reads. The TUN stays, with its addresses and routes.
func (t *TUN) Close() (err error) {
	t.closing.Do(func() {
		close(t.closed)
		dev, _ := t.now()
		err = dev.Close()
		t.forwards.Wait()
		close(t.events)
	})
	return err
}

// File is that of the TUN as it is now.
func (t *TUN) File() *os.File { dev, _ := t.now(); return dev.File() }

// MTU of the link, bytes.
func (t *TUN) MTU() (int, error) { dev, _ := t.now(); return dev.MTU() }

// Name of the link.
func (t *TUN) Name() (string, error) { return t.opt.Interface, nil }

// Events gives changes of the link until the TUN is closed.
func (t *TUN) Events() <-chan tun.Event { return t.events }

// BatchSize is how many packets one call carries at most.
func (t *TUN) BatchSize() int { return t.batch }
