//go:build linux

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestReadyOnceStarted(t *testing.T) {
	body, err := client(t, shared.Admin()).RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	if err != nil || string(body) != "ok" {
		t.Errorf("/readyz is %q: %v", body, err)
	}
}

func TestReleaseIsTheOneOfTheModule(t *testing.T) {
	version, err := client(t, shared.Admin()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if want := "v1.37.2"; version.GitVersion != want {
		t.Errorf("the API server is %s, want %s", version.GitVersion, want)
	}
}

func TestKubectlSeesWhatWasApplied(t *testing.T) {
	shared.Apply(t,
		"apiVersion: v1\nkind: Node\nmetadata: {name: kubectl-a}",
		"{apiVersion: v1, kind: Node, metadata: {name: kubectl-b}}",
	)
	stdout, stderr, err := shared.Kubectl(t, "get", "nodes", "kubectl-a", "kubectl-b", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	if want := "node/kubectl-a\nnode/kubectl-b\n"; stdout != want {
		t.Errorf("kubectl get nodes: got %q, want %q (%s)", stdout, want, stderr)
	}
}

func TestKubectlSaysWhyItFailed(t *testing.T) {
	_, stderr, err := shared.Kubectl(t, "get", "node", "absent")
	const want = `nodes "absent" not found`
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(stderr, want) {
		t.Errorf("got %v and %q, want %s", err, stderr, want)
	}
}

func TestKubeconfigHoldsTheIdentity(t *testing.T) {
	account, err := shared.ServiceAccountToken(t.Context(), "kubeconfig", "reader")
	if err != nil {
		t.Fatal(err)
	}
	node, err := shared.User("system:node:n1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want   string
		config *rest.Config
	}{
		{"admin", shared.Admin()},
		{"system:node:n1", node},
		{"system:serviceaccount:kubeconfig:reader", account},
	} {
		t.Run(tt.want, func(t *testing.T) {
			path, err := shared.Kubeconfig(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			config, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				t.Fatal(err)
			}
			if got := whoAmI(t, config).Username; got != tt.want {
				t.Errorf("the file is that of %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTokenOfAPodNamesItsNode(t *testing.T) {
	// The second time all is there already.
	for range 2 {
		config, err := shared.NodeToken(t.Context(), "tokens", "agent", "token-a")
		if err != nil {
			t.Fatal(err)
		}
		user := whoAmI(t, config)
		if want := "system:serviceaccount:tokens:agent"; user.Username != want {
			t.Errorf("the user is %q, want %q", user.Username, want)
		}
		for key, want := range map[string]string{
			"authentication.kubernetes.io/node-name": "token-a",
			"authentication.kubernetes.io/pod-name":  NodePod("agent", "token-a"),
		} {
			if got := user.Extra[key]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
	}
}

func TestRBACIsInForce(t *testing.T) {
	config, err := shared.NodeToken(t.Context(), "rbac", "agent", "rbac-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an account without a role lists nodes: %v", err)
	}
}

func TestControllersDeleteWhatAnOwnerLeft(t *testing.T) {
	maps := client(t, shared.Admin()).CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, func() error {
		_, err := maps.Get(t.Context(), owned.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the owned object is there: %v", err)
	})
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func whoAmI(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review, err := client(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}
