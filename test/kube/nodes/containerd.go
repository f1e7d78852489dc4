//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

const socket = "/run/containerd/containerd.sock"

// containerdConfig is for a machine where this process lacks some of root's powers, and where
// there is no systemd.
const containerdConfig = `version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/` + pauseImage + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%[1]s"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

// podNetwork gives each pod an address of the node's pod CIDR, and a cable to a bridge.
const podNetwork = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`

// writeFiles makes what the programs of the node find when they start.
func (n *Node) writeFiles(context.Context) error {
	for _, dir := range []string{"cni", "lib/kubelet", "log"} {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			return err
		}
	}
	config := fmt.Sprintf(containerdConfig, n.path("cni"))
	if err := os.WriteFile(n.path("containerd.toml"), []byte(config), 0o600); err != nil {
		return err
	}
	return n.writeKubeletFiles()
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }

// daemon starts a program of the node whose output goes to its log.
func (n *Node) daemon(name string, command ...string) (*process, error) {
	log, err := os.OpenFile(n.Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := n.launch(cmd)
	if err == nil {
		p.log = n.Log(name)
	}
	return p, err
}

func (n *Node) startContainerd(ctx context.Context) (err error) {
	if n.containerd, err = n.daemon("containerd", "containerd", "--config", n.path("containerd.toml")); err != nil {
		return err
	}
	return poll(ctx, func() error {
		err := n.Do(func() error {
			c, err := net.Dial("unix", socket)
			if err != nil {
				return err
			}
			return c.Close()
		})
		if err != nil {
			return errors.Join(err, n.containerd.running())
		}
		return nil
	})
}

func (n *Node) importImages(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		if _, err := n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}

// configurePods waits for the node's pod CIDR, and tells containerd, which looks for it.
func (n *Node) configurePods(ctx context.Context) error {
	var cidr string
	err := n.await(ctx, func(node *corev1.Node) error {
		if cidr = node.Spec.PodCIDR; cidr == "" {
			return errors.New("the controllers have given it no pod CIDR: start them with ControllerFlags")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(n.path("cni/10-pods.conflist"), fmt.Appendf(nil, podNetwork, cidr), 0o600)
}
