//go:build linux

package cluster

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ServiceAccountToken returns the configuration of a client with a token of the service
// account for an hour. It makes namespace and account where they are absent.
func (c *Cluster) ServiceAccountToken(ctx context.Context, namespace, serviceAccount string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, err
	}
	if err := ensureAccount(ctx, client, namespace, serviceAccount); err != nil {
		return nil, err
	}
	return c.token(ctx, client, namespace, serviceAccount, nil)
}

// NodeToken returns the configuration of a client with a token such as the kubelet mounts
// into a pod of the service account on the node: bound to that pod, and with the node's name
// in it. It makes namespace, account, Node and Pod (see NodePod) where they are absent.
func (c *Cluster) NodeToken(ctx context.Context, namespace, serviceAccount, node string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, err
	}
	if err := ensureAccount(ctx, client, namespace, serviceAccount); err != nil {
		return nil, err
	}
	_, err = client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if made(err) != nil {
		return nil, fmt.Errorf("create node %s: %w", node, err)
	}
	pod, err := ensurePod(ctx, client, podOn(namespace, serviceAccount, node))
	if err != nil {
		return nil, err
	}
	return c.token(ctx, client, namespace, serviceAccount, &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
	})
}

// NodePod is the name of the Pod that NodeToken binds its tokens to. They are void once it
// is deleted.
func NodePod(serviceAccount, node string) string { return serviceAccount + "-on-" + node }

// token asks for a token, which is bound to the object unless that is nil.
func (c *Cluster) token(ctx context.Context, client kubernetes.Interface, namespace, serviceAccount string, bound *authenticationv1.BoundObjectReference) (*rest.Config, error) {
	hour := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour, BoundObjectRef: bound}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of %s/%s: %w", namespace, serviceAccount, err)
	}
	config, err := c.anonymous()
	if err != nil {
		return nil, err
	}
	config.BearerToken = answer.Status.Token
	return config, nil
}

func ensureAccount(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); made(err) != nil {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); made(err) != nil {
		return fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	return nil
}

func ensurePod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (*corev1.Pod, error) {
	pods := client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); made(err) != nil {
		return nil, fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return pods.Get(ctx, pod.Name, metav1.GetOptions{})
}

// podOn is a Pod as the scheduler leaves it. It stays on a node that never reports, which
// controllers taint.
func podOn(namespace, serviceAccount, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: NodePod(serviceAccount, node)},
		Spec: corev1.PodSpec{
			ServiceAccountName: serviceAccount,
			NodeName:           node,
			Containers:         []corev1.Container{{Name: "none", Image: "none.invalid/none"}},
			Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// made returns the error of a creation, for which an object that is there is success.
func made(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
