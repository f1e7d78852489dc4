//go:build linux

package agents

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// A machine that is no Node of the cluster joins with a kubeconfig and keeps itself up to date, with
// a TUN or, without any privilege, with a stack in the process.
func TestAMachineOutsideOfTheClusterJoins(t *testing.T) {
	w := newWorld(t)
	ada := w.machine("ada")
	admin := w.cluster.Admin()
	outside, rootless := w.wired("out"), w.wired("less")
	for _, m := range []*machine{outside, rootless} {
		m.connect(admin)
	}
	w.cluster.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: MeshNode\nmetadata: {name: out}\nspec: {location: elsewhere, podCIDRs: [10.42.2.0/24]}\n", v1alpha1.GroupVersion()))
	ada.start()
	outside.start()
	rootless.start("--mode", "netstack", "--forward", fmt.Sprintf("tcp/127.0.0.1:8000=%s:80", ada.podAddr()))
	w.connected(ada, outside)
	ada.serve("pod of ada")
	w.await(30*time.Second, func() error {
		var c net.Conn
		if err := rootless.Do(func() (err error) { c, err = net.Dial("tcp", "127.0.0.1:8000"); return err }); err != nil {
			return err
		}
		defer c.Close()
		if got, err := io.ReadAll(c); string(got) != "pod of ada" {
			return fmt.Errorf("read %q, %v", got, err)
		}
		return nil
	})
	mesh, _, err := w.cluster.Kubectl(t, "get", "meshnode", "less", "-o", "jsonpath={.status.meshAddresses[0]} {.status.mode} {.metadata.ownerReferences}")
	fields := strings.Fields(mesh)
	if err != nil || len(fields) != 2 || fields[1] != "netstack" {
		t.Fatalf("the rootless machine is %q, %v", mesh, err)
	}
	if err := ada.pod.AwaitPing(netip.MustParseAddr(fields[0])); err != nil {
		t.Errorf("a pod to the rootless machine: %v", err)
	}
	// A node that joins later is heard of by all.
	ben := w.machine("ben")
	ben.start()
	w.connected(ada, outside, ben)
	// One that is taken out is let go of by all.
	if _, _, err := w.cluster.Kubectl(t, "delete", "node", "ben"); err != nil {
		t.Fatal(err)
	}
	if err := ben.agent.Stop(); err != nil {
		t.Error(err)
	}
	outside.routed(time.Minute, fmt.Sprintf("10.42.%d.0/24", ben.number), false)
}
