//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"k8s.io/client-go/kubernetes"

	"github.com/stillwire/stillwire/test/kube/cluster"
)

// Options say what Start starts.
type Options struct {
	// Names of the nodes. The first has the address 10.200.0.11.
	Names []string
	// Images that the nodes have beside ToolImage. There is no registry to pull others from.
	Images []Image
}

// Nodes are running nodes of one cluster.
type Nodes struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	lock    *os.File
	dir     string // holds all they have on disk; its name is that of their cgroup
	list    []*Node
}

// dirs is the pattern of the folders of all test processes, in the system's for temporary files.
const dirs = "stillwire-nodes-*"

// Start returns once all nodes are Ready. The cluster listens at Address, has a scheduler, and
// controllers with ControllerFlags. The context bounds the start alone. Upon an error nothing is
// left running.
func Start(ctx context.Context, c *cluster.Cluster, options Options) (*Nodes, error) {
	if len(options.Names) > mostNodes {
		return nil, fmt.Errorf("%d nodes are more than %d", len(options.Names), mostNodes)
	}
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, err
	}
	removeLeftovers(ctx)
	n := &Nodes{cluster: c, client: client}
	if err := n.start(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start nodes: %w", err), n.Stop())
	}
	return n, nil
}

func (n *Nodes) start(ctx context.Context, options Options) (err error) {
	if n.dir, n.lock, err = makeDir(); err != nil {
		return err
	}
	archives, err := n.writeImages(ctx, options.Images)
	if err != nil {
		return err
	}
	for i, name := range options.Names {
		n.list = append(n.list, &Node{
			name: name, addr: netip.AddrFrom4([4]byte{10, 200, 0, byte(firstNode + i)}),
			nodes: n, dir: filepath.Join(n.dir, name), cgroup: filepath.Join(filepath.Base(n.dir), name),
		})
	}
	errs := make([]error, len(n.list))
	var all sync.WaitGroup
	for i, node := range n.list {
		all.Go(func() {
			if errs[i] = node.start(ctx, archives); errs[i] != nil {
				errs[i] = fmt.Errorf("node %s: %w", node.name, errs[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Node returns the node of that name, and nil when there is none.
func (n *Nodes) Node(name string) *Node {
	for _, node := range n.list {
		if node.name == name {
			return node
		}
	}
	return nil
}

// Stop ends all that runs on the nodes, as a power cut would, and removes what they had. The
// objects in the cluster stay.
func (n *Nodes) Stop() (err error) {
	for _, node := range n.list {
		node.stop()
	}
	if n.dir == "" {
		return nil
	}
	err = remove(context.Background(), n.dir)
	return errors.Join(err, n.lock.Close())
}

// makeDir makes the folder of this test process, and locks a file in it for as long as that lives.
func makeDir() (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp("", dirs); err != nil {
		return "", nil, err
	}
	if lock, err = os.Create(filepath.Join(dir, "lock")); err != nil {
		return "", nil, err
	}
	return dir, lock, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeLeftovers removes the folders and cgroups of test processes that were killed: nobody
// holds their locks. What cannot be removed now may be so next time.
func removeLeftovers(ctx context.Context) {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), dirs))
	for _, dir := range found {
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			continue // about to be made, or gone
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = remove(ctx, dir)
		}
		_ = lock.Close() // was only read
	}
}

// remove removes the folder last: it is what tells of the cgroups.
func remove(ctx context.Context, dir string) error {
	if err := removeCgroup(ctx, filepath.Base(dir)); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// writeImages returns the paths of the archives.
func (n *Nodes) writeImages(ctx context.Context, images []Image) (paths []string, err error) {
	tool := filepath.Join(n.dir, "pod")
	if err := Build(ctx, "test/kube", "./nodes/pod", tool); err != nil {
		return nil, err
	}
	images = append([]Image{{Name: ToolImage, Program: tool}, {Name: pauseImage, Program: tool}}, images...)
	for _, image := range images {
		path := filepath.Join(n.dir, fmt.Sprintf("image-%d.tar", len(paths)))
		if err := image.write(path); err != nil {
			return nil, fmt.Errorf("make image %s: %w", image.Name, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
