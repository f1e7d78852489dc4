//go:build linux

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/test/netns"
)

// Node is a device.Device on a kernel TUN in a process of its own, since a process is what
// lives in a network namespace, and what can be killed. The test talks to it by net/rpc over
// the pipes of its standard input and output.
type Node struct {
	dev *device.Device
	log opLog

	mu   sync.Mutex
	told []device.Change
}

// Nothing is what a call without arguments or results has.
type Nothing struct{}

// NodeOptions are the Options that a test sets.
type NodeOptions struct {
	Name     string // of the TUN
	StateDir string
	UAPI     bool
}

// PeerView is what a test wants to know of a peer.
type PeerView struct {
	PublicKey         device.PublicKey
	Applied, Endpoint netip.AddrPort
	LastHandshake     time.Time
	Received, Sent    uint64
}

// opLog keeps the lines in which wireguard-go tells of each operation that reaches it.
type opLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *opLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("UAPI: ")) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, string(p))
	}
	return len(p), nil
}

// stdio is the node's end of the pipes.
type stdio struct {
	io.Reader
	io.Writer
}

func (stdio) Close() error { return nil }

// serveNode is the main function of a node. It ends when its standard input does.
func serveNode() int {
	n := &Node{}
	server := rpc.NewServer()
	if err := server.Register(n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server.ServeConn(stdio{os.Stdin, os.Stdout})
	if n.dev != nil {
		n.dev.Close()
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Open opens the device.
func (n *Node) Open(o NodeOptions, _ *Nothing) (err error) {
	t, err := tun.CreateTUN(o.Name, mtu)
	if err != nil {
		return fmt.Errorf("open TUN %s: %w", o.Name, err)
	}
	n.dev, err = device.Open(device.Options{
		Name: o.Name, TUN: t, Bind: device.NewBind(device.BindOptions{}), StateDir: o.StateDir,
		Log: zerolog.New(&n.log).Level(zerolog.TraceLevel), OnChange: n.changed,
	})
	if err != nil {
		t.Close()
		return err
	}
	if o.UAPI {
		return n.dev.ListenUAPI("")
	}
	return nil
}

func (n *Node) changed(c []device.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, c...)
}

// Apply makes the device equal wg-quick text.
func (n *Node) Apply(text []byte, changes *[]device.Change) error {
	f, err := device.Parse("node.conf", bytes.NewReader(text), device.ParseOptions{})
	if err != nil {
		return err
	}
	*changes, err = n.dev.Apply(context.Background(), f.Config)
	return err
}

// Reach makes a handshake with the owner of an address, within 10 s.
func (n *Node) Reach(dst netip.Addr, _ *Nothing) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.dev.Reach(ctx, dst)
}

// Peers returns what the device sees, sorted by key.
func (n *Node) Peers(_ Nothing, peers *[]PeerView) error {
	s, err := n.dev.State()
	for _, p := range s.Peers {
		*peers = append(*peers, PeerView{p.PublicKey, p.Applied, p.Endpoint, p.LastHandshake, p.ReceiveBytes, p.TransmitBytes})
	}
	return err
}

// Operations returns the log lines of operations that reached wireguard-go so far.
func (n *Node) Operations(_ Nothing, lines *[]string) error {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	*lines = slices.Clone(n.log.lines)
	return nil
}

// Told returns what OnChange was told so far.
func (n *Node) Told(_ Nothing, changes *[]device.Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	*changes = slices.Clone(n.told)
	return nil
}

// nodeProcess is a Node as the test sees it.
type nodeProcess struct {
	*child
	key device.PrivateKey
}

// startNode starts a node in a namespace, on a TUN that is there already.
func startNode(t *testing.T, ns *netns.Namespace, key device.PrivateKey, o NodeOptions) *nodeProcess {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	// The race detector would keep an ended process for a second.
	cmd.Env = append(os.Environ(), nodeEnv+"=1", "GORACE=atexit_sleep_ms=0")
	n := &nodeProcess{startChild(t, "Node", cmd, ns.Start), key}
	n.call("Open", o, &Nothing{})
	return n
}

func (n *nodeProcess) apply(c device.Config) (changes []device.Change) {
	n.t.Helper()
	c.PrivateKey = n.key
	n.call("Apply", (&device.File{Config: c}).Format(), &changes)
	return changes
}

func (n *nodeProcess) peer(key device.PublicKey) PeerView {
	n.t.Helper()
	var peers []PeerView
	n.call("Peers", Nothing{}, &peers)
	i := slices.IndexFunc(peers, func(p PeerView) bool { return p.PublicKey == key })
	if i < 0 {
		n.t.Fatalf("the node has no peer %s", key)
	}
	return peers[i]
}

// startOver is more than 5.3 s, after which wireguard-go repeats an initiation: also one that
// was answered, if on a busy machine the answer came before the timer was set.
const startOver = 7 * time.Second

// settled waits until no handshake can come any more that belongs to the start.
func (n *nodeProcess) settled(key device.PublicKey) (p PeerView) {
	n.t.Helper()
	await(n.t, 40*time.Second, func() error {
		if time.Since(p.LastHandshake) >= startOver {
			p = n.peer(key)
		}
		if since := time.Since(p.LastHandshake); since < startOver {
			return fmt.Errorf("the last handshake was %v ago", since)
		}
		return nil
	})
	return p
}

// operations are the log lines that hold the words.
func (n *nodeProcess) operations(words string) (found []string) {
	n.t.Helper()
	var lines []string
	n.call("Operations", Nothing{}, &lines)
	for _, line := range lines {
		if strings.Contains(line, words) {
			found = append(found, line)
		}
	}
	return found
}

// follows is a condition: the peer is at the address.
func (n *nodeProcess) follows(key device.PublicKey, is func(netip.AddrPort) bool) error {
	if at := n.peer(key).Endpoint; !is(at) {
		return errors.New("the node has its peer at " + at.String())
	}
	return nil
}
