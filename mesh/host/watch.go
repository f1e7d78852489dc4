//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How long Run waits for what comes along with a change, and between two looks at what is not
// ours.
const (
	settle     = 50 * time.Millisecond
	factsEvery = time.Second
)

// news is what the sockets have told and nobody has looked at: channels of size one.
type news struct{ ours, around chan struct{} }

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run calls again when the surroundings have changed, and when what is ours was, unless the
// options say NoRepair; the second ever later where another program keeps changing it. What
// others do with their own is read past. It returns when ctx is done. What the kernel does not
// let it watch, it does not: Apply names what is missing.
func (h *Host) Run(ctx context.Context, again func()) error {
	n := news{make(chan struct{}, 1), make(chan struct{}, 1)}
	sockets := h.listen()
	var readers sync.WaitGroup
	defer readers.Wait()
	for _, s := range sockets {
		defer s.file.Close()
		readers.Go(func() { h.read(s, n) })
	}
	h.watched.Store(len(sockets) > 0)
	defer h.watched.Store(false)
	tell(n.around) // what changed while nobody watched
	h.pace(ctx, n, again)
	return nil
}

// pace is the loop of Run. A timer that is nil never fires.
func (h *Host) pace(ctx context.Context, n news, again func()) {
	var repair, look, calm <-chan time.Time
	last, looked := h.facts.Load(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.ours:
			if repair == nil {
				repair = time.After(settle)
			}
		case <-n.around:
			if look == nil {
				look = time.After(max(settle, factsEvery-time.Since(looked)))
			}
		case <-repair:
			// Asked now and not before, as the last repair may just have been made.
			if wait := h.fight.pause(time.Now()); wait > 0 {
				repair = time.After(wait)
				continue
			}
			repair = nil
			again()
			if calm == nil {
				calm = time.After(memory)
			}
		case <-calm:
			if calm = nil; h.fight.begun() {
				again() // it is over, and so is the problem that names it
			}
		case <-look:
			look, looked = nil, time.Now()
			if h.moved(&last) {
				again()
			}
		}
	}
}

// moved reads the surroundings and reports whether they are others than the last. Much is told
// that changes nothing: lifetimes of addresses, counters of links.
func (h *Host) moved(last **surroundings) bool {
	k, err := openKernel()
	if err != nil {
		return true // Apply says why
	}
	defer k.close()
	now, err := h.around(k)
	if err != nil {
		return true
	}
	same := *last != nil && (*last).same(now)
	*last = now
	return !same
}

func (s *surroundings) same(other *surroundings) bool {
	a, b := *s, *other
	a.read, b.read = 0, 0
	a.names, b.names = nil, nil // a link without an address means nothing
	return reflect.DeepEqual(a, b)
}

// socket is one that the kernel tells changes on.
type socket struct {
	file *os.File
	// sort tells what a datagram is about.
	sort func([]byte) (ours, around bool)
}

// listen opens the sockets that can be.
func (h *Host) listen() (sockets []socket) {
	groups := []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}
	if !h.opt.NoRepair {
		groups = append(groups, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
			unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF)
	}
	route, err := listen(unix.NETLINK_ROUTE, h.opt.routeFilter(), groups...)
	if err != nil {
		h.opt.Log.Warn().Err(err).Msg("cannot watch links, addresses and routes, they are compared at each resync")
	} else {
		sockets = append(sockets, socket{route, h.sortRoute})
	}
	if h.opt.NoRepair {
		return sockets
	}
	nft, err := listen(unix.NETLINK_NETFILTER, nil, unix.NFNLGRP_NFTABLES)
	if err != nil {
		h.opt.Log.Warn().Err(err).Msg("cannot watch nftables, the table is compared at each resync")
		return sockets
	}
	s := &nftSorter{link: []byte(h.opt.Interface), noted: &h.filters, drops: make(map[string]bool)}
	if k, err := openKernel(); err == nil {
		defer k.close()
		if chains, err := k.readForeign(h.opt); err == nil {
			s.know(chains)
		}
	}
	return append(sockets, socket{nft, s.sort})
}

// watchBuffer is what the kernel keeps of changes that were not read yet, bytes.
const watchBuffer = 4 << 20

func listen(protocol int, filter []unix.SockFilter, groups ...uint) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, watchBuffer) // without: the system's limit
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil && filter != nil {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	}
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g))
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch netlink: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// read reads a socket until it is closed. When the kernel had to throw changes away, anything
// may have changed.
func (h *Host) read(s socket, n news) {
	b := make([]byte, 64<<10)
	for {
		got, err := s.file.Read(b)
		ours, around := errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOBUFS)
		if err == nil {
			ours, around = s.sort(b[:got])
		} else if !ours {
			return
		}
		if err != nil {
			h.filters.Add(1)
		}
		if around {
			h.changes.Add(1)
			tell(n.around)
		}
		if ours && !h.opt.NoRepair {
			tell(n.ours)
		}
	}
}
