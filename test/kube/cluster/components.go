//go:build linux

package cluster

import (
	"context"
	"fmt"
)

// frontProxy is the name by which aggregated API servers know this one.
const frontProxy = "front-proxy-client"

func (c *Cluster) startEtcd(context.Context) (err error) {
	c.etcd, err = c.run("etcd", etcdFlags(c))
	return err
}

func (c *Cluster) startControllers(ctx context.Context) (err error) {
	if !c.options.Controllers {
		return nil
	}
	at, err := freePort(c.client.Addr())
	if err != nil {
		return err
	}
	if c.controllers, err = c.run("kube-controller-manager", controllersFlags(c, at.Port())); err != nil {
		return err
	}
	// What two of the controllers make shows that they work.
	return c.await(ctx, c.controllers,
		"/api/v1/namespaces/default/serviceaccounts/default",
		"/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
}

func (c *Cluster) startScheduler(context.Context) error {
	if !c.options.Scheduler {
		return nil
	}
	at, err := freePort(c.client.Addr())
	if err != nil {
		return err
	}
	c.scheduler, err = c.run("kube-scheduler", clientFlags(c.kubeconfig("scheduler"), at.Port()))
	return err
}

func (c *Cluster) run(component string, flags []string) (*process, error) {
	return startProcess(component, c.dir, c.Log(component), append([]string{c.box, component}, flags...))
}

func etcdFlags(c *Cluster) []string {
	client, peer := "http://"+c.client.String(), "http://"+c.peer.String()
	return []string{
		"--name=etcd", "--data-dir=" + c.dir + "/etcd", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		"--unsafe-no-fsync", // the data need not outlive the machine
	}
}

func apiFlags(c *Cluster) []string {
	address := c.api.Addr()
	flags := []string{
		"--etcd-servers=http://" + c.client.String(),
		"--bind-address=" + address.String(), "--advertise-address=" + address.String(),
		fmt.Sprintf("--secure-port=%d", c.api.Port()),
		"--tls-cert-file=" + c.pki("api.pub"), "--tls-private-key-file=" + c.pki("api.key"),
		"--client-ca-file=" + c.pki("ca.pub"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("tokens.pub"),
		"--service-account-signing-key-file=" + c.pki("tokens.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--kubelet-client-certificate=" + c.pki("kubelet.pub"), "--kubelet-client-key=" + c.pki("kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file=" + c.pki("ca.pub"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("proxy.pub"), "--proxy-client-key-file=" + c.pki("proxy.key"),
		"--allow-privileged=true",
		// Else a stop waits a minute for clients to end their watches, which they do not.
		"--shutdown-watch-termination-grace-period=1s",
	}
	if address.IsLoopback() { // the API server refuses such an endpoint of its own Service
		flags = append(flags, "--endpoint-reconciler-type=none")
	}
	return append(flags, c.options.APIFlags...)
}

func controllersFlags(c *Cluster, port uint16) []string {
	flags := append(clientFlags(c.kubeconfig("controllers"), port),
		"--root-ca-file="+c.pki("ca.pub"),
		"--service-account-private-key-file="+c.pki("tokens.key"),
		"--cluster-signing-cert-file="+c.pki("ca.pub"), "--cluster-signing-key-file="+c.pki("ca.key"),
		"--use-service-account-credentials=true",
	)
	return append(flags, c.options.ControllerFlags...)
}

// clientFlags are those of a component that is a client of the API server.
func clientFlags(kubeconfig string, port uint16) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--leader-elect=false", // there is no other
	}
}
