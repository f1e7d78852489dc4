//go:build linux

package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a machine of the cluster.
type Node struct {
	nodes  *Nodes
	name   string
	addr   netip.Addr
	dir    string // what it has on disk; /var/lib is lib in there
	cgroup string

	// init holds the namespaces, and reaps what others leave behind in them.
	init       *process
	handle     *os.File // of init: a pidfd
	containerd *process
	mu         sync.Mutex
	kubelet    *process // nil while it is stopped
}

// namespaces are those that a node has of its own. Init is started in them, others enter.
const namespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP

// Addr is the node's own address.
func (n *Node) Addr() netip.Addr { return n.addr }

// start returns once the node is Ready.
func (n *Node) start(ctx context.Context, archives []string) error {
	for _, step := range []func(context.Context) error{
		n.writeFiles, n.startInit, n.connect, n.mount, n.startContainerd,
		func(ctx context.Context) error { return n.importImages(ctx, archives) },
		n.StartKubelet, n.configurePods, n.awaitReady,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startInit makes the namespaces. A shell can ignore the ends of children, and a program inherits
// that: so zombies go by themselves.
func (n *Node) startInit(context.Context) (err error) {
	if err := makeCgroup(n.cgroup); err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", "trap '' CHLD; exec sleep infinity")
	cmd.SysProcAttr = dieWithParent(namespaces)
	if n.init, err = startOn(cmd, func() error { return joinCgroup(n.cgroup) }); err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return fmt.Errorf("open a handle of the node's init: %w", err)
	}
	n.handle = os.NewFile(uintptr(fd), "init")
	return nil
}

// enter moves the calling thread, which nobody else may use afterwards, into the node.
func (n *Node) enter() error {
	if err := joinCgroup(n.cgroup); err != nil {
		return err
	}
	// The root folder is shared with the other threads, and would change for them.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(n.handle.Fd()), namespaces); err != nil {
		return fmt.Errorf("enter the namespaces of node %s: %w", n.name, err)
	}
	return nil
}

// Do runs f on a thread that is in all of the node's namespaces: files that f opens are those of
// the node, and sockets belong there for good. f must not wait for other goroutines to open them.
func (n *Node) Do(f func() error) error { return onThread(n.enter, f) }

// launch starts a command on the node, with what the node's own programs have in their
// environment. It ends with the node's init, and that with the test.
func (n *Node) launch(cmd *exec.Cmd) (*process, error) {
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Dir = "/"
	return startOn(cmd, n.enter)
}

// Exec runs a program on the node as root, and returns what it wrote to its standard output. The
// error holds the arguments and what it complained of. It is killed when the context ends.
func (n *Node) Exec(ctx context.Context, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	p, err := n.launch(cmd)
	if err == nil {
		<-p.ended
		err = p.err
	}
	if err != nil {
		err = fmt.Errorf("on %s: %s %s: %w: %s", n.name, program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), err
}

// connect gives the node a cable to the fabric, an address, and the API server's service.
func (n *Node) connect(ctx context.Context) error {
	pid := n.init.cmd.Process.Pid
	if err := ip(
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", n.name, pid),
		fmt.Sprintf("link set %s master %s up", n.name, bridge),
	); err != nil {
		return err
	}
	api := n.nodes.cluster.API()
	dnat := fmt.Sprintf("ip daddr 10.96.0.1 tcp dport 443 dnat to %s", api)
	for _, command := range []string{
		"ip link set lo up",
		fmt.Sprintf("ip addr add %s/%d dev eth0", n.addr, fabricLength),
		"ip link set eth0 up",
		"ip route add default via " + Address().String(),
		"nft add table ip services",
		"nft add chain ip services pods { type nat hook prerouting priority -100; }",
		"nft add chain ip services node { type nat hook output priority -100; }",
		"nft add rule ip services pods " + dnat,
		"nft add rule ip services node " + dnat,
	} {
		words := strings.Fields(command)
		if _, err := n.Exec(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady returns once the kubelet says that the node is Ready.
func (n *Node) awaitReady(ctx context.Context) error {
	return n.await(ctx, func(node *corev1.Node) error {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
			if c.Type == corev1.NodeReady {
				return fmt.Errorf("not ready: %s", c.Message)
			}
		}
		return errors.New("has no condition Ready")
	})
}

// await looks at the Node until good finds nothing wrong with it.
func (n *Node) await(ctx context.Context, good func(*corev1.Node) error) error {
	return poll(ctx, func() error {
		node, err := n.nodes.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return errors.Join(err, n.runningKubelet().running(), n.containerd.running())
		}
		return good(node)
	})
}

// stop ends all that runs on the node. Mounts and namespaces go with the last of it.
func (n *Node) stop() {
	// The kernel ends all that is in the namespace of an init that ends.
	n.init.kill()
	n.kubelet.kill()
	n.containerd.kill()
	if n.handle != nil {
		_ = n.handle.Close() // nothing was written
	}
}

// Log returns the path of a log: "kubelet" or "containerd".
func (n *Node) Log(program string) string { return filepath.Join(n.dir, program+".log") }
