//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// podManifest is of a pod that gives way to no rule of the namespace's, were it a restricted one.
const podManifest = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: pod
    image: pod:latest
    imagePullPolicy: Never
    args: [serve]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    securityContext:
      runAsUser: 65532
      runAsNonRoot: true
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
`

// pod is one that serves on a node.
type pod struct {
	t    *testing.T
	name string
	node *Node
	ip   string
}

// startPod returns once the pod is ready. It goes with the test.
func startPod(t *testing.T, name, node string) *pod {
	t.Helper()
	shared.Apply(t, fmt.Sprintf(podManifest, name, node))
	t.Cleanup(func() { deletePod(t, name) })
	kubectl(t, "wait", "pod", name, "--for=condition=Ready", "--timeout=60s")
	ip := kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	return &pod{t: t, name: name, node: two.Node(node), ip: ip}
}

// deletePod is for the end of a test, when its context is done.
func deletePod(t *testing.T, name string) {
	client, err := kubernetes.NewForConfig(shared.Admin())
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	err = poll(context.Background(), func() error {
		if _, err := client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("pod %s is there", name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// ask asks the pod from its node, as the kubelet does.
func (p *pod) ask(path string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = p.node.Do(func() (err error) {
			c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	response, err := client.Get("http://" + p.ip + ":8080" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// get has the pod ask another.
func (p *pod) get(other *pod) (string, error) { return p.ask("/get?url=" + other.url()) }

func (p *pod) url() string { return "http://" + p.ip + ":8080/" }

// mustReach fails the test unless each pod sees the other's own address.
func mustReach(t *testing.T, a, b *pod) {
	t.Helper()
	for _, way := range [][2]*pod{{a, b}, {b, a}} {
		from, to := way[0], way[1]
		got, err := from.get(to)
		want := fmt.Sprintf("pod %s, asked by %s:", to.ip, from.ip)
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s asks %s: got %q, want %s: %v", from.name, to.name, got, want, err)
		}
	}
}

// flow is what the program in the folder pod says of one.
type flow struct {
	Sent, Returned int
	Gap            time.Duration
}

func (f flow) String() string {
	return fmt.Sprintf("sent %d, lost %d, longest gap %v", f.Sent, f.Sent-f.Returned, f.Gap.Round(time.Millisecond))
}

// startFlow has datagrams go from one pod to the other and back, until the function is called.
func startFlow(t *testing.T, from, to *pod) (stop func() flow) {
	t.Helper()
	if _, err := from.ask("/flow/start?to=" + to.ip); err != nil {
		t.Fatal(err)
	}
	return func() (f flow) {
		t.Helper()
		answer, err := from.ask("/flow/stop")
		if err == nil {
			err = json.Unmarshal([]byte(answer), &f)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		return f
	}
}

// kubectl is for what must work.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := shared.Kubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shipped returns what is in the files of the folder deploy.
func shipped(t *testing.T, patterns ...string) (manifests []string) {
	t.Helper()
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join("../../../deploy", pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no deploy/%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			manifests = append(manifests, string(text))
		}
	}
	return manifests
}

// eventually tries until there is no error, and fails the test when that takes too long.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	if err := poll(t.Context(), try); err != nil {
		t.Fatal(err)
	}
}
