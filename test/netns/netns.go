//go:build linux

package netns

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Lab is the namespaces of one test.
type Lab struct {
	t  testing.TB
	id string
}

// NewLab fails the test, and says what is missing, where there cannot be a lab.
func NewLab(t testing.TB) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests as root")
	}
	Need(t, "ip")
	var random [3]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	return &Lab{t: t, id: "sw" + hex.EncodeToString(random[:])}
}

// Need fails the test when a program is missing, and says in which Debian package it is.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	packages := map[string]string{"ip": "iproute2", "nft": "nftables", "wg": "wireguard-tools"}
	for _, program := range programs {
		if path(program) == "" {
			t.Fatalf("the program %s is missing: apt-get install %s", program, packages[program])
		}
	}
}

// path finds a program also where PATH lacks the folders of root's.
func path(program string) string {
	if found, err := exec.LookPath(program); err == nil {
		return found
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if found, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return found
		}
	}
	return ""
}

// Name returns a name that no other lab has, for what the whole machine shares: a namespace,
// a UAPI socket. It fits an interface when role is no longer than 6 characters.
func (l *Lab) Name(role string) string { return l.id + "-" + role }

// Namespace is one network namespace: a machine as far as the network goes.
type Namespace struct {
	t    testing.TB
	lab  *Lab
	role string
	name string // of the whole machine
}

// Namespace makes a namespace with its loopback up.
func (l *Lab) Namespace(role string) *Namespace {
	l.t.Helper()
	n := &Namespace{t: l.t, lab: l, role: role, name: l.Name(role)}
	if out, err := exec.Command(path("ip"), "netns", "add", n.name).CombinedOutput(); err != nil {
		l.t.Fatalf("make network namespace %s: %v: %s", n.name, err, out)
	}
	l.t.Cleanup(func() {
		if out, err := exec.Command(path("ip"), "netns", "del", n.name).CombinedOutput(); err != nil {
			l.t.Errorf("remove network namespace %s: %v: %s", n.name, err, out)
		}
	})
	n.Sysctl("net/ipv6/conf/all/accept_dad", "0")
	n.Sysctl("net/ipv6/conf/default/accept_dad", "0")
	n.IP("link set lo up")
	return n
}

// String is the role.
func (n *Namespace) String() string { return n.role }

// Do runs f on a thread that is in the namespace: sockets that f opens, and processes that it
// starts, belong there for good. f must not wait for other goroutines to open them.
func (n *Namespace) Do(f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return errors.Join(err, unlock())
	}
	defer home.Close()
	there, err := os.Open(filepath.Join("/run/netns", n.name))
	if err != nil {
		return errors.Join(err, unlock())
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return errors.Join(fmt.Errorf("enter network namespace %s: %w", n.role, err), unlock())
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("a thread is stuck in network namespace %s: %v", n.role, err))
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

func unlock() error {
	runtime.UnlockOSThread()
	return nil
}

// in is Do for what must work.
func (n *Namespace) in(f func() error) {
	n.t.Helper()
	if err := n.Do(f); err != nil {
		n.t.Fatalf("in network namespace %s: %v", n.role, err)
	}
}

// IP runs commands of ip(8), each without the word ip.
func (n *Namespace) IP(commands ...string) {
	n.t.Helper()
	n.pipe(strings.Join(commands, "\n"), "ip", "-batch", "-")
}

// NFT runs commands of nft(8), in one transaction.
func (n *Namespace) NFT(commands ...string) {
	n.t.Helper()
	n.pipe(strings.Join(commands, "\n"), "nft", "-f", "-")
}

func (n *Namespace) pipe(stdin, program string, args ...string) {
	n.t.Helper()
	cmd := exec.Command(path(program), args...)
	cmd.Stdin = strings.NewReader(stdin + "\n")
	var out []byte
	err := n.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		n.t.Fatalf("%s in network namespace %s: %v: %s\n%s", program, n.role, err, out, stdin)
	}
}

// Sysctl writes a value below /proc/sys.
func (n *Namespace) Sysctl(name, value string) {
	n.t.Helper()
	n.in(func() error { return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644) })
}

// Connect joins two namespaces by a cable. In each, the interface has the other's role for a
// name, and is up.
func (l *Lab) Connect(a, b *Namespace) {
	l.t.Helper()
	a.IP(fmt.Sprintf("link add %s type veth peer name %s netns %s", b.role, a.role, b.name), "link set "+b.role+" up")
	b.IP("link set " + a.role + " up")
}

// TUN makes a TUN with the given addresses, each with its prefix length, that is up and stays
// while processes that serve it come and go. Its queue is long enough for a process that is
// kept from the CPU for a second.
func (n *Namespace) TUN(name string, mtu int, addrs ...string) {
	n.t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		n.t.Fatalf("a TUN needs /dev/net/tun (modprobe tun, or --device /dev/net/tun for a container): %v", err)
	}
	n.IP("tuntap add mode tun dev "+name, fmt.Sprintf("link set %s mtu %d txqueuelen 10000 up", name, mtu))
	n.AddAddrs(name, addrs...)
}

// AddAddrs gives an interface addresses, each with its prefix length, that may be used at
// once. An IPv6 address otherwise is tentative for a moment: should the one before go in that
// moment, the kernel takes an address of another interface as a source, even a tunnel's.
func (n *Namespace) AddAddrs(link string, addrs ...string) {
	n.t.Helper()
	var commands []string
	for _, addr := range addrs {
		nodad := ""
		if strings.Contains(addr, ":") {
			nodad = " nodad"
		}
		commands = append(commands, fmt.Sprintf("addr add %s dev %s%s", addr, link, nodad))
	}
	n.IP(commands...)
}
