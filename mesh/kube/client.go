package kube

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// DefaultNamespace is where the agents run.
const DefaultNamespace = "stillwire"

// ClientOptions say how the API server is reached.
type ClientOptions struct {
	// Kubeconfig is the path of a file; "": the service account of the pod that this process runs
	// in.
	Kubeconfig string
	// Context of the kubeconfig; "": its current one.
	Context string
	// Namespace of the agents, which holds the Secrets with preshared keys; "": that of the pod, or
	// DefaultNamespace.
	Namespace string
	// UserAgent that the API server sees; "": that of client-go.
	UserAgent string
}

// Client speaks to one API server. It may be used from any goroutine.
type Client struct {
	namespace string
	host      string
	nodes     *gentype.ClientWithList[*corev1.Node, *corev1.NodeList]
	meshNodes *gentype.ClientWithList[*v1alpha1.MeshNode, *v1alpha1.MeshNodeList]
	peers     *gentype.ClientWithList[*v1alpha1.Peer, *v1alpha1.PeerList]
	secrets   *gentype.ClientWithList[*corev1.Secret, *corev1.SecretList]
	configs   *gentype.ClientWithList[*corev1.ConfigMap, *corev1.ConfigMapList]
	spaces    *gentype.Client[*corev1.Namespace]
	slices    *gentype.ClientWithList[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
	events    *gentype.Client[*eventsv1.Event]
	reach     *reach
	others    dynamic.Interface // of groups whose types are other programs'
}

// Connect reads the configuration, and asks nobody yet.
func Connect(o ClientOptions) (*Client, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent = o.UserAgent
	return NewClient(config, o.namespace())
}

func (o ClientOptions) config() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("the cluster that this process runs in: %w: give --kubeconfig FILE outside of a pod", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	return config, nil
}

// inPod is where a pod finds the namespace that it runs in.
const inPod = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (o ClientOptions) namespace() string {
	if o.Namespace != "" {
		return o.Namespace
	}
	if text, err := os.ReadFile(inPod); err == nil && o.Kubeconfig == "" && len(text) > 0 {
		return strings.TrimSpace(string(text))
	}
	return DefaultNamespace
}

// NewClient is Connect for a configuration that is there already.
func NewClient(config *rest.Config, namespace string) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, eventsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	codec := runtime.NewParameterCodec(scheme)
	// One HTTP client, and so one connection, for all groups.
	reach := &reach{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { reach.RoundTripper = next; return reach })
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	group := func(path string, gv schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.APIPath, c.GroupVersion = path, &gv
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		if gv.Group != v1alpha1.Group {
			c.ContentType = runtime.ContentTypeProtobuf
			c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
		return rest.RESTClientForConfigAndClient(c, httpClient)
	}
	core, err := group("/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	own, err := group("/apis", v1alpha1.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	events, err := group("/apis", eventsv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	discovery, err := group("/apis", discoveryv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	others, err := dynamic.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &Client{
		reach:     reach,
		others:    others,
		namespace: namespace,
		host:      config.Host,
		nodes:     gentype.NewClientWithList("nodes", core, codec, "", func() *corev1.Node { return &corev1.Node{} }, func() *corev1.NodeList { return &corev1.NodeList{} }, gentype.PrefersProtobuf[*corev1.Node]()),
		secrets:   gentype.NewClientWithList("secrets", core, codec, namespace, func() *corev1.Secret { return &corev1.Secret{} }, func() *corev1.SecretList { return &corev1.SecretList{} }, gentype.PrefersProtobuf[*corev1.Secret]()),
		configs:   gentype.NewClientWithList("configmaps", core, codec, namespace, func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} }, gentype.PrefersProtobuf[*corev1.ConfigMap]()),
		spaces:    gentype.NewClient("namespaces", core, codec, "", func() *corev1.Namespace { return &corev1.Namespace{} }, gentype.PrefersProtobuf[*corev1.Namespace]()),
		meshNodes: gentype.NewClientWithList(v1alpha1.MeshNodes, own, codec, "", func() *v1alpha1.MeshNode { return &v1alpha1.MeshNode{} }, func() *v1alpha1.MeshNodeList { return &v1alpha1.MeshNodeList{} }),
		peers:     gentype.NewClientWithList(v1alpha1.Peers, own, codec, "", func() *v1alpha1.Peer { return &v1alpha1.Peer{} }, func() *v1alpha1.PeerList { return &v1alpha1.PeerList{} }),
		slices:    gentype.NewClientWithList("endpointslices", discovery, codec, metav1.NamespaceDefault, func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} }, func() *discoveryv1.EndpointSliceList { return &discoveryv1.EndpointSliceList{} }, gentype.PrefersProtobuf[*discoveryv1.EndpointSlice]()),
		events:    gentype.NewClient("events", events, codec, metav1.NamespaceDefault, func() *eventsv1.Event { return &eventsv1.Event{} }),
	}, nil
}

// Host is the address of the API server, as the configuration has it.
func (c *Client) Host() string { return c.host }

// cluster is what tells one cluster from another.
func (c *Client) cluster(ctx context.Context) (string, error) {
	ns, err := c.spaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(ns.UID), nil
}

// Kubeconfig is the path of the file that kubectl would use.
func Kubeconfig() string {
	return clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename()
}
