//go:build linux

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// Every manifest that is shipped is one that the API server takes, field by field.
func TestManifestsAreTaken(t *testing.T) {
	texts, err := shipped("manifests/*.yaml", "gateway/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shared.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: stillwire-gateway, labels: {pod-security.kubernetes.io/enforce: restricted}}\n")
	for _, o := range objects(t, texts...) {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := shared.DryRun(t.Context(), string(text)); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// The gateway and the sidecar run where Pod Security is enforced at its strictest. The agent, which
// needs the network of its node, is refused there: that is the control.
func TestGatewaysRunUnderRestrictedPodSecurity(t *testing.T) {
	shared.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}\n",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: stillwire, namespace: restricted}\n")
	c, err := dynamic.NewForConfig(shared.Admin())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, want string
	}{
		{"gateway/deployment.yaml", ""},
		{"gateway/sidecar.yaml", ""},
		{"manifests/agent.yaml", "violates PodSecurity"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			texts, err := shipped(tt.file)
			if err != nil {
				t.Fatal(err)
			}
			pods := 0
			for _, o := range objects(t, texts...) {
				spec, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
				if err != nil || !found {
					continue
				}
				pods++
				delete(spec, "priorityClassName")
				pod := object("v1", "Pod", "a-"+o.GetName(), map[string]any{"spec": spec})
				_, err = c.Resource(resource("", "v1", "pods")).Namespace("restricted").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case tt.want == "" && err != nil:
					t.Error(err)
				case tt.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
			if pods != 1 {
				t.Errorf("%d pods are in it", pods)
			}
		})
	}
}

// objects of manifests.
func objects(t *testing.T, texts ...string) (list []*unstructured.Unstructured) {
	t.Helper()
	for _, text := range texts {
		d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := d.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if o.Object != nil {
				list = append(list, o)
			}
		}
	}
	return list
}
