//go:build linux

package netns

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Message types of the kernel's linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h.
const (
	nfnlSubsysCTNetlink = 1
	ipctnlMsgCTDelete   = 2
	nfgenmsgLen         = 4
)

// FlushConntrack makes the namespace forget every connection, and so every NAT mapping, as a
// home router does that was switched off and on.
func (n *Namespace) FlushConntrack() {
	n.t.Helper()
	n.in(flushConntrack)
}

// flushConntrack sends a delete without a tuple, which means all.
func flushConntrack() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack netlink socket: %w", err)
	}
	defer unix.Close(s)
	b := make([]byte, unix.NLMSG_HDRLEN+nfgenmsgLen)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], nfnlSubsysCTNetlink<<8|ipctnlMsgCTDelete)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	binary.NativeEndian.PutUint32(b[8:], 1)
	if err := unix.Sendto(s, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
	}
	answer := make([]byte, 4096)
	got, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
	}
	if got < unix.NLMSG_HDRLEN+4 {
		return fmt.Errorf("flush conntrack: an answer of %d bytes", got)
	}
	if errno := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); errno != 0 {
		return fmt.Errorf("flush conntrack: %w", unix.Errno(-errno))
	}
	return nil
}
