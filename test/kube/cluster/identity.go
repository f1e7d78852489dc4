//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin returns the configuration of a client that may do everything, as a copy.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// User returns the configuration of a client with a certificate for the user, who is in the
// groups. RBAC decides what it may do, and for system:node:NAME in system:nodes the API
// server's rules for nodes.
func (c *Cluster) User(name string, groups ...string) (*rest.Config, error) {
	issued, err := c.authority.user(name, groups...)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s: %w", name, err)
	}
	config, err := c.anonymous()
	if err != nil {
		return nil, err
	}
	config.CertData, config.KeyData = issued.public, issued.private
	return config, nil
}

// anonymous trusts the API server, and brings nothing that this could know it by. Data
// instead of paths keep client-go from watching files in goroutines of its own.
func (c *Cluster) anonymous() (*rest.Config, error) {
	ca, err := c.authority.pair()
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: c.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: ca.public}}, nil
}

// Kubeconfig writes the configuration of a client, such as Admin's or NodeToken's, to a new
// file and returns its path.
func (c *Cluster) Kubeconfig(config *rest.Config) (string, error) {
	file, err := os.CreateTemp(c.dir, "*.kubeconfig")
	if err != nil {
		return "", err
	}
	defer file.Close()
	return file.Name(), writeKubeconfig(file.Name(), config)
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "cluster"
	k := clientcmdapi.NewConfig()
	k.CurrentContext = name
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
		TokenFile:             config.BearerTokenFile,
	}
	return clientcmd.WriteToFile(*k, path)
}

// writeIdentities makes the keys and certificates that the components' flags name.
func (c *Cluster) writeIdentities(context.Context) (err error) {
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.pki(""), 0o700); err != nil {
		return err
	}
	for name, issue := range map[string]func() (pair, error){
		"ca":      c.authority.pair,
		"tokens":  newSigner,
		"api":     c.serving,
		"proxy":   func() (pair, error) { return c.authority.user(frontProxy) },
		"kubelet": func() (pair, error) { return c.authority.user("kube-apiserver", "system:masters") },
	} {
		issued, err := issue()
		if err != nil {
			return fmt.Errorf("issue %s: %w", name, err)
		}
		if err := issued.write(c.pki(""), name); err != nil {
			return err
		}
	}
	return c.writeKubeconfigs()
}

// serving issues the certificate of the API server, which pods know by other names.
func (c *Cluster) serving() (pair, error) {
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	addresses := []net.IP{c.api.Addr().AsSlice(), {127, 0, 0, 1}, {10, 96, 0, 1}}
	return c.authority.server("kube-apiserver", names, addresses)
}

func (c *Cluster) writeKubeconfigs() (err error) {
	if c.admin, err = c.User("admin", "system:masters"); err != nil {
		return err
	}
	c.admin.QPS = -1 // tests create by the hundred, and the API server bears it
	if err := writeKubeconfig(c.kubeconfig("admin"), c.admin); err != nil {
		return err
	}
	for name, user := range map[string]string{
		"controllers": "system:kube-controller-manager",
		"scheduler":   "system:kube-scheduler",
	} {
		config, err := c.User(user)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(c.kubeconfig(name), config); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) pki(name string) string        { return filepath.Join(c.dir, "pki", name) }
func (c *Cluster) kubeconfig(name string) string { return filepath.Join(c.dir, name+".kubeconfig") }
