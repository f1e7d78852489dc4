//go:build linux

package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// theirs is a definition as far as we read the objects; the programs' own say more of them.
func theirs(group, version, kind, plural string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Cluster
  names: {kind: %[3]s, plural: %[4]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, version, kind, plural)
}

// Where another program gives pods their addresses, its objects say which are a node's, and not the
// Node.
func TestPodCIDRsOfOtherPrograms(t *testing.T) {
	const node = "podcidrs"
	agent := agentOf(t, shared, node)
	shared.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: podcidrs}\nspec: {podCIDR: 10.42.9.0/24, podCIDRs: [10.42.9.0/24]}\n",
		fmt.Sprintf("apiVersion: %s\nkind: MeshNode\nmetadata: {name: podcidrs}\n", v1alpha1.GroupVersion()),
		theirs("cilium.io", "v2", "CiliumNode", "ciliumnodes"), theirs("crd.projectcalico.org", "v1", "BlockAffinity", "blockaffinities"))
	for _, crd := range []string{"ciliumnodes.cilium.io", "blockaffinities.crd.projectcalico.org"} {
		if _, _, err := shared.Kubectl(t, "wait", "--for=condition=Established", "--timeout=30s", "crd/"+crd); err != nil {
			t.Fatal(err)
		}
	}
	block := func(name, cidr, state string) string {
		return fmt.Sprintf("apiVersion: crd.projectcalico.org/v1\nkind: BlockAffinity\nmetadata: {name: %s}\nspec: {node: %s, cidr: %s, state: %s}\n", name, node, cidr, state)
	}
	shared.Apply(t, "apiVersion: cilium.io/v2\nkind: CiliumNode\nmetadata: {name: podcidrs}\nspec: {ipam: {podCIDRs: [10.0.3.0/24, 'fd00:3::/112']}}\n",
		block("a", "10.1.0.64/26", "confirmed"), block("b", "10.1.7.0/26", "pending"), block("c", "10.1.0.0/26", "confirmed"))

	has := func(of kube.PodCIDRs, l *listener, want string) {
		t.Helper()
		await(t, 30*time.Second, func() error {
			n, err := l.node(node)
			if got := fmt.Sprint(n.PodCIDRs); err == nil && got != want {
				return fmt.Errorf("pods by %s are %s, want %s", of, got, want)
			}
			return err
		})
	}
	has(kube.OfNode, listen(t, agent, kube.SourceOptions{}), "[10.42.9.0/24]")
	for of, want := range map[kube.PodCIDRs]string{
		kube.OfCilium: "[10.0.3.0/24 fd00:3::/112]", kube.OfCalico: "[10.1.0.0/26 10.1.0.64/26]",
	} {
		l := listen(t, agent, kube.SourceOptions{PodCIDRs: of})
		await(t, 30*time.Second, func() error {
			if down := l.update().Down; !strings.Contains(down, "does not allow") {
				return fmt.Errorf("without rights, down is %q", down)
			}
			return nil
		})
		texts, err := shipped("cni/" + string(of) + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		shared.Apply(t, texts...)
		l = listen(t, agent, kube.SourceOptions{PodCIDRs: of})
		has(of, l, want)
		if of == kube.OfCalico { // Calico gives a node blocks as it needs them
			shared.Apply(t, block("b", "10.1.7.0/26", "confirmed"))
			has(of, l, "[10.1.0.0/26 10.1.0.64/26 10.1.7.0/26]")
		}
	}
	if _, err := kube.NewSource(as(t, agent), kube.SourceOptions{PodCIDRs: "clium"}); err == nil || !strings.Contains(err.Error(), "write cilium") {
		t.Errorf("a program that is none: %v", err)
	}
	for _, what := range []string{"clusterrolebinding/stillwire-agent-cilium", "clusterrolebinding/stillwire-agent-calico", "meshnode/podcidrs"} {
		if _, _, err := shared.Kubectl(t, "delete", what); err != nil {
			t.Error(err)
		}
	}
}
