//go:build linux

package nodes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// The life of a mesh on a cluster as an administrator sees it, with the manifests as they are
// shipped and the commands of deploy/README.md.
func TestMeshFromInstallToUninstall(t *testing.T) {
	w := watch(t)
	a, b := startPod(t, "a", "n1"), startPod(t, "b", "n2")

	// The control: without the mesh there is no way, and the watcher sees what tries.
	if got, err := a.get(b); err == nil {
		t.Fatalf("pods of two nodes reach each other without a mesh: %s", got)
	}
	before := w.counts()
	if before.Clear == 0 || before.Tunnel != 0 {
		t.Fatalf("without a mesh the fabric sees %+v", before)
	}
	machines := map[string]string{"n1": dump(t, "n1"), "n2": dump(t, "n2")}

	install(t)
	atFirst := w.counts()
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"pods reach pods, by the tunnel alone", func(t *testing.T) { mustBeTunnelled(t, w, a, b) }},
		{"kubectl get meshnodes", mustBeListed},
		{"kubectl logs and exec", func(t *testing.T) { mustAnswerKubectl(t, a, b) }},
		{"rollout under traffic", func(t *testing.T) { rollOut(t, a, b) }},
		{"node without kubelet", func(t *testing.T) { outliveKubelet(t, a, b) }},
	} {
		if !t.Run(step.name, step.run) {
			explain(t)
		}
	}
	if after := w.counts(); after.Other != 0 || after.Clear != atFirst.Clear {
		t.Errorf("between nodes went more than the tunnel: %+v, once installed %+v\n%s", after, atFirst, w.seen())
	}

	uninstall(t)
	for name, want := range machines {
		if diff := difference(want, dump(t, name)); diff != "" {
			t.Errorf("%s is not as it was:\n%s", name, diff)
		}
	}
	if got, err := a.get(b); err == nil {
		t.Errorf("pods of two nodes reach each other after uninstall: %s", got)
	}
}

// install does what deploy/README.md says, and waits for the agents.
func install(t *testing.T) {
	t.Helper()
	began := time.Now()
	shared.Apply(t, shipped(t, "crds/*.yaml")...)
	shared.Apply(t, shipped(t, "manifests/rights.yaml", "manifests/policy.yaml", "manifests/settings.yaml", "manifests/agent.yaml")...)
	kubectl(t, "-n", "stillwire", "rollout", "status", "daemonset/stillwire", "--timeout=90s")
	t.Logf("agents are ready after %v", time.Since(began).Round(time.Millisecond))
}

func mustBeTunnelled(t *testing.T, w *watcher, a, b *pod) {
	before := w.counts()
	// An agent is ready before the other node has taken note of it.
	eventually(t, func() error { _, err := a.get(b); return err })
	mustReach(t, a, b)
	if after := w.counts(); after.Tunnel <= before.Tunnel || after.Clear != before.Clear {
		t.Errorf("the fabric has seen %+v, before that %+v", after, before)
	}
}

// mustBeListed wants an address of the mesh's subnet and the condition of each node.
func mustBeListed(t *testing.T) {
	subnet := netip.MustParsePrefix("10.4.0.0/16")
	eventually(t, func() error {
		out := kubectl(t, "get", "meshnodes", "--no-headers", "-o",
			`custom-columns=N:.metadata.name,A:.status.meshAddresses[0],R:.status.conditions[?(@.type=="Ready")].status,P:.status.conditions[?(@.type=="AdmissionPolicy")].status`)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for i, line := range lines {
			f := strings.Fields(line)
			if len(lines) != 2 || f[0] != fmt.Sprint("n", i+1) || f[2] != "True" || f[3] != "True" {
				return fmt.Errorf("meshnodes are\n%s", out)
			}
			if addr, err := netip.ParseAddr(f[1]); err != nil || !subnet.Contains(addr) {
				return fmt.Errorf("%s has the address %s: %w", f[0], f[1], err)
			}
		}
		return nil
	})
	t.Logf("\n%s", kubectl(t, "get", "meshnodes"))
}

// mustAnswerKubectl shows that the API server reaches kubelets beside the mesh.
func mustAnswerKubectl(t *testing.T, a, b *pod) {
	if got := kubectl(t, "logs", a.name); got != "serving on "+a.ip+"\n" {
		t.Errorf("the log of %s is %q", a.name, got)
	}
	got := kubectl(t, "exec", a.name, "--", "/pod", "get", b.url())
	if want := fmt.Sprintf("pod %s, asked by %s:", b.ip, a.ip); !strings.HasPrefix(got, want) {
		t.Errorf("kubectl exec: got %q, want %s", got, want)
	}
	for _, agent := range agents(t) {
		if got := kubectl(t, "-n", "stillwire", "logs", agent); !strings.Contains(got, `"message":"agent is starting"`) {
			t.Errorf("the log of %s is %s", agent, got)
		}
		kubectl(t, "-n", "stillwire", "exec", agent, "--", "/stillwire", "status", "--check", "ready")
	}
}

// agents are the names of their pods.
func agents(t *testing.T) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "-n", "stillwire", "get", "pods", "-o", "name"))
}

// longestGap is how long a tunnel may stand still while an agent is replaced. It takes 0.3 s on two
// processors that have more to do, and would take 2 to 4 s for an agent that starts only when the
// last one's pod is gone.
const longestGap = 1500 * time.Millisecond

// rollOut replaces both agents under two flows of datagrams and one request after the other.
func rollOut(t *testing.T, a, b *pod) {
	old := agents(t)
	there, back := startFlow(t, a, b), startFlow(t, b, a)
	stop := startRequests(a, b)
	began := time.Now()
	kubectl(t, "-n", "stillwire", "rollout", "restart", "daemonset/stillwire")
	kubectl(t, "-n", "stillwire", "rollout", "status", "daemonset/stillwire", "--timeout=120s")
	// It is over before the last of the old agents have ended.
	eventually(t, func() error {
		if now := agents(t); len(now) != 2 || slices.ContainsFunc(now, func(name string) bool { return slices.Contains(old, name) }) {
			return fmt.Errorf("agents are %v, and were %v", now, old)
		}
		_, err := a.get(b)
		return err
	})
	took := time.Since(began)
	t.Logf("rollout took %v; requests from a to b: %v", took.Round(time.Millisecond), stop())
	for name, f := range map[string]flow{"a": there(), "b": back()} {
		t.Logf("datagrams from %s and back: %v", name, f)
		if f.Gap > longestGap {
			t.Errorf("nothing came back to %s for %v", name, f.Gap)
		}
	}
}

// outliveKubelet kills a kubelet: the cluster takes the node for lost, and its pods go on.
func outliveKubelet(t *testing.T, a, b *pod) {
	n2 := two.Node("n2")
	stop := startFlow(t, a, b)
	began := time.Now()
	n2.KillKubelet()
	kubectl(t, "wait", "node", "n2", "--for=condition=Ready=Unknown", "--timeout=60s")
	t.Logf("not ready after %v", time.Since(began).Round(time.Millisecond))
	mustReach(t, a, b)
	began = time.Now()
	if err := n2.StartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "wait", "node", "n2", "--for=condition=Ready", "--timeout=60s")
	t.Logf("ready again after %v", time.Since(began).Round(time.Millisecond))
	kubectl(t, "-n", "stillwire", "rollout", "status", "daemonset/stillwire", "--timeout=60s")
	f := stop()
	t.Logf("datagrams meanwhile: %v", f)
	if f.Sent != f.Returned {
		t.Errorf("a kubelet that is gone has cost %d datagrams", f.Sent-f.Returned)
	}
}

// uninstall does what deploy/README.md says.
func uninstall(t *testing.T) {
	t.Helper()
	const manifests = "../../../deploy/manifests"
	kubectl(t, "delete", "-f", manifests+"/agent.yaml")
	kubectl(t, "-n", "stillwire", "wait", "pods", "--all", "--for=delete", "--timeout=60s")
	for _, n := range two.list {
		out, err := n.Exec(t.Context(), stillwire, "uninstall")
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s: %d things removed", n.name, strings.Count(out, "\n"))
	}
	kubectl(t, "delete", "--ignore-not-found", "-f", manifests, "-f", "../../../deploy/crds")
	left := kubectl(t, "get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds,namespaces", "-o", "name")
	if strings.Contains(left, "stillwire") {
		t.Errorf("left in the cluster:\n%s", left)
	}
}

// explain shows what the agents have said.
func explain(t *testing.T) {
	for _, n := range two.list {
		out, err := n.Exec(t.Context(), "sh", "-c", "tail -n 60 /var/log/pods/stillwire_*/*/*.log")
		t.Logf("%s: agents' logs: %v\n%s", n.name, err, out)
	}
}
