package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// Facts reads the cluster once, as a Source would: for a look from outside. Secrets are read only
// where a Peer names them.
func (c *Client) Facts(ctx context.Context, locationLabel string) (mesh.Update, error) {
	objects := &objectSet{nodes: make(map[string]*corev1.Node), secrets: make(map[string]*corev1.Secret)}
	nodes, err := c.nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return mesh.Update{}, explained("nodes", err)
	}
	for i := range nodes.Items {
		objects.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	meshNodes, err := c.meshNodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return mesh.Update{}, explained("meshnodes."+v1alpha1.Group, err)
	}
	for i := range meshNodes.Items {
		objects.meshNodes = append(objects.meshNodes, &meshNodes.Items[i])
	}
	peers, err := c.peers.List(ctx, metav1.ListOptions{})
	if err != nil {
		return mesh.Update{}, explained("peers."+v1alpha1.Group, err)
	}
	for i := range peers.Items {
		p := &peers.Items[i]
		objects.peers = append(objects.peers, p)
		if err := c.secretOf(ctx, p, objects.secrets); err != nil {
			return mesh.Update{}, err
		}
	}
	if locationLabel == "" {
		locationLabel = DefaultLocationLabel
	}
	u := objects.update(ReadOptions{LocationLabel: locationLabel})
	return u, c.settings(ctx, &u)
}

func explained(kind string, err error) error { return fmt.Errorf("%s", explain(kind, err)) }

// secretOf reads the Secret that a Peer names, where there is one.
func (c *Client) secretOf(ctx context.Context, p *v1alpha1.Peer, into map[string]*corev1.Secret) error {
	if p.Spec.PresharedKey == nil || into[p.Spec.PresharedKey.Name] != nil {
		return nil
	}
	s, err := c.secrets.Get(ctx, p.Spec.PresharedKey.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the preshared key of peer %s: %w", p.Name, err)
	}
	if err == nil {
		into[s.Name] = s
	}
	return nil
}

// settings adds those of the ConfigMap. Who may not read it goes on without.
func (c *Client) settings(ctx context.Context, u *mesh.Update) error {
	config, err := c.configs.Get(ctx, SettingsName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("read the settings of the mesh: %w", err)
	}
	settings, ok, problems := readSettings(config)
	u.Problems = append(u.Problems, problems...)
	if ok {
		u.Settings = &settings
	}
	return nil
}

// CreatePeer makes a Peer of the key, the addresses and the prefixes. It is an error when there is
// one of this name.
func (c *Client) CreatePeer(ctx context.Context, p mesh.Peer) error {
	o := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	o.Spec = v1alpha1.PeerSpec{
		PublicKey: p.PublicKey.String(), AllowedIPs: texts(p.AllowedIPs), MeshAddresses: texts(p.MeshAddresses),
		Endpoint: p.Endpoint.String(), PersistentKeepalive: int32(p.PersistentKeepalive.Seconds()),
	}
	_, err := c.peers.Create(ctx, o, metav1.CreateOptions{FieldManager: "stillwire"})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("there is a peer %s already: choose another name, or show it with stillwire peer config %s", p.Name, p.Name)
	}
	if err != nil {
		return fmt.Errorf("create peer %s: %w", p.Name, err)
	}
	return nil
}

// SetPeerKey gives a Peer another public key.
func (c *Client) SetPeerKey(ctx context.Context, name string, key device.PublicKey) error {
	patch := fmt.Appendf(nil, `{"spec":{"publicKey":%q}}`, key.String())
	if _, err := c.peers.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "stillwire"}); err != nil {
		return fmt.Errorf("change the key of peer %s: %w", name, err)
	}
	return nil
}
