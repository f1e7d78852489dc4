// Command box is a Kubernetes control plane and node in one binary: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and kubelet, each as its own project builds it, and the
// kubectl of the same release.
// It acts as the component its first argument names:
//
//	box kube-apiserver --etcd-servers=...
//
// One binary, since they share nearly all of their code and linking takes longest.
// It holds no code of the product and none of the tests.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // CronJobs name time zones, and a bare machine has no list of them

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics the real binaries have
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const components = "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl"

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
		// The component reads its flags from os.Args, as if it had been started by its name.
		os.Args = os.Args[1:]
	}
	os.Exit(run(name))
}

// run acts as the named component until that ends, and returns its exit status.
func run(name string) int {
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return 0
	}
	command := commandOf(name)
	if command == nil {
		fmt.Fprintf(os.Stderr, "usage: box COMPONENT [FLAG]...\ncomponents: %s\n", components)
		return 2
	}
	return cli.Run(command)
}

// commandOf returns nil for a name that is not one of Kubernetes' components.
func commandOf(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}
