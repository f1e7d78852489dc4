package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
	"github.com/stillwire/stillwire/mesh/scan"
)

// SecretLabel marks the Secrets with preshared keys: agents see no others.
const SecretLabel = v1alpha1.Group + "/preshared-keys"

// defaultSecretKey is where in a Secret a preshared key stands.
const defaultSecretKey = "presharedKey"

// readPeer makes a fact of a Peer. A peer whose preshared key cannot be had is left out (ok is
// false): without it there would be a tunnel that is weaker than was asked for.
func readPeer(o *v1alpha1.Peer, secret func(name string) *corev1.Secret) (p mesh.Peer, ok bool, problems []mesh.Problem) {
	r := &reading{subject: mesh.Subject{Kind: mesh.KindPeer, Name: o.Name, Source: "peer/" + o.Name}}
	p = mesh.Peer{
		Identity:            identity("peer", &o.ObjectMeta),
		Endpoint:            one(r, "spec.endpoint", o.Spec.Endpoint, scan.Endpoint),
		PersistentKeepalive: number(r, "spec.persistentKeepalive", o.Spec.PersistentKeepalive, scan.Keepalive),
		AllowedIPs:          many(r, "spec.allowedIPs", o.Spec.AllowedIPs, scan.Prefix),
		MeshAddresses:       many(r, "spec.meshAddresses", o.Spec.MeshAddresses, scan.Addr),
	}
	var f *scan.Fault
	if p.PublicKey, f = scan.PublicKey(o.Spec.PublicKey); f != nil {
		r.refuseKey("spec.publicKey", f)
	}
	if ref := o.Spec.PresharedKey; ref != nil {
		p.PresharedKey = r.presharedKey(ref, secret)
	}
	return p, !r.lost, r.problems
}

func (r *reading) presharedKey(ref *v1alpha1.SecretKey, secret func(name string) *corev1.Secret) (key device.PresharedKey) {
	const field = "spec.presharedKey"
	name := ref.Key
	if name == "" {
		name = defaultSecretKey
	}
	s := secret(ref.Name)
	if s == nil {
		r.refuseKey(field, scan.Bad(fmt.Sprintf("names the Secret %s, which the agents do not see", scan.Shown(ref.Name)),
			"create it in the namespace of the agents, with the label "+SecretLabel))
		return key
	}
	text, ok := s.Data[name]
	if !ok {
		r.refuseKey(field, scan.Bad(fmt.Sprintf("names the key %s, which the Secret %s does not have", scan.Shown(name), scan.Shown(ref.Name)), "put the output of wg genpsk there"))
		return key
	}
	key, err := device.ParsePresharedKey(strings.TrimSpace(string(text)))
	if err != nil || key.IsZero() {
		r.refuseKey(field, scan.Bad(fmt.Sprintf("is no WireGuard key (%s of the Secret %s)", scan.Shown(name), scan.Shown(ref.Name)), "put the output of wg genpsk there"))
	}
	return key
}
