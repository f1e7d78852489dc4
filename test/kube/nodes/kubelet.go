//go:build linux

package nodes

import (
	"context"
	"fmt"
	"os"
)

// kubeletConfig is for cgroups of version 1 without systemd, for a process that lacks some of
// root's powers, and for a disk that is others' too.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://` + socket + `
resolvConf: %[3]s
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 20000
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 1Mi}
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
syncFrequency: 10s
`

// writeKubeletFiles gives the kubelet its identity: system:node:NAME, to which the API server
// gives rights of its own.
func (n *Node) writeKubeletFiles() error {
	user, err := n.nodes.cluster.User("system:node:"+n.name, "system:nodes")
	if err != nil {
		return err
	}
	kubeconfig, err := n.nodes.cluster.Kubeconfig(user)
	if err != nil {
		return err
	}
	if err := os.Rename(kubeconfig, n.path("kubelet.kubeconfig")); err != nil {
		return err
	}
	config := fmt.Sprintf(kubeletConfig, n.addr, n.path("ca.pub"), n.path("resolv.conf"))
	for name, content := range map[string]string{
		"ca.pub":       string(user.CAData),
		"resolv.conf":  "nameserver 127.0.0.1\n",
		"kubelet.yaml": config,
	} {
		if err := os.WriteFile(n.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// StartKubelet starts the kubelet, and leaves one that runs alone.
func (n *Node) StartKubelet(context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet != nil {
		return nil
	}
	n.kubelet, err = n.daemon("kubelet", n.nodes.cluster.Box(), "kubelet",
		"--config="+n.path("kubelet.yaml"), "--kubeconfig="+n.path("kubelet.kubeconfig"),
		"--hostname-override="+n.name, "--node-ip="+n.addr.String(), "--v=2")
	return err
}

// KillKubelet ends the kubelet as a crash does. Its pods go on, and the cluster soon takes the
// node for lost.
func (n *Node) KillKubelet() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kubelet.kill()
	n.kubelet = nil
}

func (n *Node) runningKubelet() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kubelet
}
