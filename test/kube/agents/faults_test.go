//go:build linux

package agents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
	"github.com/stillwire/stillwire/test/netns"
)

// A mesh forms by the API server alone, and goes on without it: for those that run, and for one that
// is killed and started anew meanwhile.
func TestAMeshFormsAndOutlivesItsAPIServer(t *testing.T) {
	w := newWorld(t)
	ada, ben, cleo := w.machine("ada"), w.machine("ben"), w.machine("cleo")
	w.startAll()
	began := time.Now()
	w.connected(ada, ben, cleo)
	t.Logf("three pods reach each other %v after the agents were started", time.Since(began).Round(100*time.Millisecond))
	w.await(20*time.Second, func() error {
		out, _, err := w.cluster.Kubectl(t, "get", "meshnodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status},{.status.conditions[?(@.type=="AdmissionPolicy")].status} {end}`)
		if err == nil && out != "ada=True,True ben=True,True cleo=True,True " {
			return fmt.Errorf("conditions are %s", out)
		}
		return err
	})
	// What is kept for a restart is written within seconds of the last change.
	w.await(time.Minute, func() error { _, err := os.Stat(filepath.Join(ada.state, "facts")); return err })

	flow, back := w.flow(ada, ben), w.flow(ben, cleo)
	if err := w.cluster.StopAPI(); err != nil {
		t.Fatal(err)
	}
	ben.said(30*time.Second, "SourceDown")
	if err := flow.AwaitSent(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	for _, r := range netns.StopAll(flow, back) {
		if len(r.Lost) > 0 || r.Sent == 0 {
			t.Errorf("without an API server: %s", r)
		}
	}

	ada.agent.Kill()
	started := time.Now()
	ada.restart()
	w.connected(ada, ben, cleo)
	t.Logf("an agent that was killed is back %v after it was started without an API server", time.Since(started).Round(10*time.Millisecond))

	if err := w.cluster.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	ben.said(time.Minute, "problem ended")
	dora := w.machine("dora")
	dora.start()
	w.connected(ada, ben, cleo, dora)
}

// Connections that carry nothing any more, and say nothing of it, are noticed, and cost no member.
func TestAWatchThatIsHalfDeadIsNoticed(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.machine("ada"), w.machine("ben")
	w.startAll()
	w.connected(ada, ben)
	ada.wire.freeze()
	began := time.Now()
	w.cluster.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: late}\nspec: {publicKey: yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM=, allowedIPs: [10.9.0.0/24]}\n", v1alpha1.GroupVersion()))
	ben.routed(10*time.Second, "10.9.0.0/24", true)
	ada.routed(time.Minute, "10.9.0.0/24", true)
	t.Logf("a change came through %v after the connections froze", time.Since(began).Round(100*time.Millisecond))
	w.connected(ada, ben)
}

// Objects of every bad kind beside a live mesh cost it not one packet.
func TestBadObjectsCostTheOthersNothing(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.machine("ada"), w.machine("ben")
	w.startAll()
	w.connected(ada, ben)
	flow, back := w.flow(ada, ben), w.flow(ben, ada)
	if err := errors.Join(flow.AwaitArrival(t.Context()), back.AwaitArrival(t.Context())); err != nil {
		t.Fatal(err)
	}
	benKey, _, err := w.cluster.Kubectl(t, "get", "meshnode", "ben", "-o", "jsonpath={.status.publicKey}")
	if err != nil {
		t.Fatal(err)
	}
	const key = "yb/XjtYY0sZlmyzAg99oOb5HX32cTiEWVO/Ir6/XERM="
	peers := map[string]string{
		"bad-pods":     "publicKey: " + key + ", allowedIPs: [10.42.2.0/24, 10.42.2.2/32]",
		"bad-key":      "publicKey: " + benKey + ", allowedIPs: [10.9.1.0/24]",
		"bad-twice":    "publicKey: " + key + ", allowedIPs: [10.9.2.0/24]",
		"bad-default":  "publicKey: nO1wXaGVNCBCuzhMpzhgcPrMA7VSVuyaTJFdeFLrJkY=, allowedIPs: ['0.0.0.0/0', '::/0']",
		"bad-machine":  "publicKey: gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=, allowedIPs: [203.0.113.2/32, 203.0.113.0/24]",
		"bad-secret":   "publicKey: xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=, allowedIPs: [10.9.3.0/24], presharedKey: {name: none}",
		"bad-endpoint": "publicKey: TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=, allowedIPs: [10.9.4.0/24], endpoint: '127.0.0.1:51820'",
	}
	for name, spec := range peers {
		w.cluster.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: %s}\nspec: {%s}\n", v1alpha1.GroupVersion(), name, spec))
	}
	w.cluster.Apply(t,
		"apiVersion: v1\nkind: Node\nmetadata: {name: bad-node}\nspec: {podCIDR: 10.42.2.0/24, podCIDRs: [10.42.2.0/24]}\n",
		fmt.Sprintf("apiVersion: %s\nkind: MeshNode\nmetadata: {name: bad-node}\nspec: {endpoint: '203.0.113.2:51820', internalIPs: [203.0.113.2]}\n", v1alpha1.GroupVersion()),
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stillwire, namespace: stillwire}\ndata: {topology: star}\n")
	if _, _, err := w.cluster.Kubectl(t, "patch", "meshnode", "bad-node", "--subresource=status", "--type=merge", "-p",
		`{"status":{"publicKey":"`+benKey+`","meshAddresses":["10.4.0.0"],"internalIPs":["nonsense"],"leads":9}}`); err != nil {
		t.Fatal(err)
	}
	for name := range peers {
		if name == "bad-twice" { // of two made within one second either may be the older
			continue
		}
		w.await(30*time.Second, func() error {
			out, _, err := w.cluster.Kubectl(t, "get", "peer.stillwire.dev", name, "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].status}`)
			if err == nil && out != "False" {
				return fmt.Errorf("peer %s is accepted: %q", name, out)
			}
			return err
		})
	}
	ada.said(20*time.Second, "DuplicateKey")
	for _, r := range netns.StopAll(flow, back) {
		if len(r.Lost) > 0 || r.Sent == 0 {
			t.Errorf("beside bad objects: %s", r)
		}
	}
}

// A node that comes back with a new key is a member again at once, and its old key is refused.
func TestANodeIsMadeAnewWithAnotherKey(t *testing.T) {
	w := newWorld(t)
	ada, ben := w.machine("ada"), w.machine("ben")
	w.startAll()
	w.connected(ada, ben)
	if err := ben.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.cluster.Kubectl(t, "delete", "node", "ben"); err != nil {
		t.Fatal(err)
	}
	ada.routed(time.Minute, "10.42.2.0/24", false)
	if _, err := ben.run(program, "uninstall", "--state-dir", ben.state); err != nil {
		t.Fatal(err)
	}
	ben.state = t.TempDir()
	ben.register()
	began := time.Now()
	ben.start()
	w.connected(ada, ben)
	t.Logf("the node with its new key is reached after %v", time.Since(began).Round(100*time.Millisecond))
}

// Rights that are taken away freeze what is known, and cost no packet; many members that vanish at
// once are asked for once more, and then believed.
func TestRightsThatAreTakenAwayRemoveNobody(t *testing.T) {
	w := newWorld(t)
	ada, ben, cleo := w.machine("ada"), w.machine("ben"), w.machine("cleo")
	w.startAll()
	w.connected(ada, ben, cleo)
	flow, back := w.flow(ada, ben), w.flow(cleo, ada)
	if err := errors.Join(flow.AwaitArrival(t.Context()), back.AwaitArrival(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.cluster.Kubectl(t, "delete", "clusterrolebinding", "stillwire-agent"); err != nil {
		t.Fatal(err)
	}
	for _, m := range w.machines {
		m.wire.cut() // the watches that are open would go on
		m.said(30*time.Second, "apply the cluster role")
	}
	if err := flow.AwaitSent(t.Context(), 500); err != nil {
		t.Fatal(err)
	}
	for _, r := range netns.StopAll(flow, back) {
		if len(r.Lost) > 0 || r.Sent == 0 {
			t.Errorf("without rights: %s", r)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/manifests/rights.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.cluster.Apply(t, string(text))
	ada.said(time.Minute, "problem ended")
	for i := range 8 {
		w.cluster.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: many-%d}\nspec: {publicKey: %sAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=, allowedIPs: [10.9.%[2]d.0/24]}\n", v1alpha1.GroupVersion(), i, []string{"yb", "nO", "gN", "xT", "Tr", "Ab", "Cd", "Ef"}[i]))
	}
	ada.routed(30*time.Second, "10.9.7.0/24", true)
	if _, _, err := w.cluster.Kubectl(t, "delete", "peers.stillwire.dev", "--all", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	ada.routed(30*time.Second, "10.9.7.0/24", false)
	ada.routed(30*time.Second, "10.9.0.0/24", false)
	w.connected(ada, ben, cleo)
}
