//go:build linux

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// report runs the reporter of a node until the test ends.
func report(t *testing.T, node string) (*kube.Reporter, *listener) {
	t.Helper()
	l := listen(t, agentOf(t, shared, node), kube.SourceOptions{})
	r := kube.NewReporter(l.client, l.source, node, zerolog.New(zerolog.NewTestWriter(t)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r, l
}

// ready makes a Node that the cluster calls ready, with a MeshNode whose agent has spoken.
func ready(t *testing.T, name string, key byte) {
	t.Helper()
	agentOf(t, shared, name)
	if _, _, err := shared.Kubectl(t, "patch", "node", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`); err != nil {
		t.Fatal(err)
	}
	c := as(t, agentOf(t, shared, name))
	if err := kube.NewPublisher(c, nil).Publish(t.Context(), name, mesh.NodeStatus{PublicKey: publicKey(key)}); err != nil {
		t.Fatal(err)
	}
}

// A problem is an Event when it begins and one when it ends, and none at each look; it stands in the
// condition of the object at fault as long as it lasts.
func TestProblemsAreEventsAndConditions(t *testing.T) {
	const first, second = "report-a", "report-b"
	ready(t, first, 11)
	await(t, 5*time.Second, olderThan(t, first)) // ages are whole seconds
	ready(t, second, 12)
	shared.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: Peer\nmetadata: {name: report}\nspec: {publicKey: %s, allowedIPs: [10.9.0.0/24]}\n", v1alpha1.GroupVersion(), goodKey))
	reporterA, a := report(t, first)
	reporterB, b := report(t, second)
	for _, l := range []*listener{a, b} {
		await(t, 20*time.Second, func() error {
			if !l.Synced() {
				return errors.New("not synced")
			}
			return nil
		})
	}
	own := mesh.Problem{Subject: mesh.Subject{Kind: mesh.KindNode, Name: second}, Field: "spec.endpoint", Value: "x", Reason: mesh.NoEndpoint, Detail: "is not known", Remedy: "give it one"}
	peer := mesh.Problem{Subject: mesh.Subject{Kind: mesh.KindPeer, Name: "report"}, Field: "spec.allowedIPs", Value: "10.9.0.0/24", Reason: mesh.OverlappingPrefix, Detail: "belongs to another", Remedy: "take another"}
	tell := func(problems ...mesh.Problem) {
		for range 3 { // as at each look
			reporterA.Report(&mesh.Status{Node: first, Plan: mesh.Plan{Self: first}, Problems: problems})
			reporterB.Report(&mesh.Status{Node: second, Plan: mesh.Plan{Self: second}, Problems: problems})
		}
	}
	tell(own, peer)
	condition := func(object, kind, want string) func() error {
		return func() error {
			out, _, err := shared.Kubectl(t, "get", object, "-o", fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status} {.status.conditions[?(@.type==%q)].reason}`, kind, kind))
			if err == nil && out != want {
				return fmt.Errorf("%s of %s is %q, want %q", kind, object, out, want)
			}
			return err
		}
	}
	await(t, 20*time.Second, condition("meshnode/"+second, "Ready", "False NoEndpoint"))
	await(t, 20*time.Second, condition("meshnode/"+first, "Ready", "True AsPlanned"))
	await(t, 20*time.Second, condition("meshnode/"+first, "AdmissionPolicy", "True Enforced"))
	await(t, 20*time.Second, condition("peer.stillwire.dev/report", "Accepted", "False OverlappingPrefix"))
	await(t, 20*time.Second, condition("peer.stillwire.dev/report", "Up", "False Silent"))
	tell()
	await(t, 20*time.Second, condition("meshnode/"+second, "Ready", "True AsPlanned"))
	await(t, 20*time.Second, condition("peer.stillwire.dev/report", "Accepted", "True AsPlanned"))

	// Who hears the peer says so; of two that hear it, one.
	alive := []mesh.PeerStatus{{Name: "report", Key: mustKey(t, goodKey), Alive: true}}
	reporterB.Report(&mesh.Status{Node: second, Plan: mesh.Plan{Self: second}, Peers: alive})
	await(t, 20*time.Second, condition("peer.stillwire.dev/report", "Up", "True Speaks"))
	out, _, err := shared.Kubectl(t, "get", "swpeer", "report", "-o", "jsonpath={.status.node}")
	if err != nil || out != second {
		t.Errorf("%q says that the peer is up, %v", out, err)
	}
	reporterB.Report(&mesh.Status{Node: second, Plan: mesh.Plan{Self: second}})
	await(t, 20*time.Second, condition("peer.stillwire.dev/report", "Up", "False Silent"))

	// Of a node that said so and is gone, nobody goes by the word.
	reporterB.Report(&mesh.Status{Node: second, Plan: mesh.Plan{Self: second}, Peers: alive})
	await(t, 20*time.Second, condition("peer.stillwire.dev/report", "Up", "True Speaks"))
	if _, _, err := shared.Kubectl(t, "delete", "meshnode", second); err != nil {
		t.Fatal(err)
	}
	await(t, 20*time.Second, func() error {
		reporterA.Report(&mesh.Status{Node: first, Plan: mesh.Plan{Self: first}})
		return condition("peer.stillwire.dev/report", "Up", "False Silent")()
	})

	out, _, err = shared.Kubectl(t, "get", "events", "-n", "default", "-o",
		`jsonpath={range .items[?(@.reportingComponent=="stillwire.dev/agent")]}{.involvedObject.kind}/{.involvedObject.name} {.type} {.reason}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{
		"MeshNode/report-b Warning NoEndpoint": 1, "MeshNode/report-b Normal NoEndpoint": 1,
		"Peer/report Warning OverlappingPrefix": 1, "Peer/report Normal OverlappingPrefix": 1,
	} {
		if got := strings.Count(out, line); got != want {
			t.Errorf("%d Events are %q, want %d, of\n%s", got, line, want, out)
		}
	}
	if _, _, err := shared.Kubectl(t, "delete", "stillwire", "--all"); err != nil {
		t.Error(err)
	}
}

// olderThan waits until what is created now is younger than the MeshNode.
func olderThan(t *testing.T, name string) func() error {
	return func() error {
		out, _, err := shared.Kubectl(t, "get", "meshnode", name, "-o", "jsonpath={.metadata.creationTimestamp}")
		if err != nil {
			return err
		}
		created, err := time.Parse(time.RFC3339, out)
		if err == nil && !time.Now().Truncate(time.Second).After(created) {
			return errors.New("the second is not over")
		}
		return err
	}
}
