package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/file"
	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/mesh/scan"
)

type peerCommand struct {
	Config peerConfigCommand `cmd:"" help:"Show what a peer is to have at its end: a wg-quick file, or a QR code for a phone."`
	Add    peerAddCommand    `cmd:"" help:"Create a peer with a new key, and show what it is to have."`
}

// lookFlags are where a mesh is looked at from outside.
type lookFlags struct {
	Kubeconfig    string `placeholder:"FILE" help:"The cluster of this kubeconfig (that of kubectl)."`
	KubeContext   string `placeholder:"NAME" help:"Context of the kubeconfig (its current one)."`
	Namespace     string `placeholder:"NAME" help:"Namespace of the agents (stillwire)."`
	LocationLabel string `default:"topology.kubernetes.io/region" placeholder:"LABEL" help:"Label of a Node that says where it is (topology.kubernetes.io/region)."`
	meshFlags
}

// lookTime is how long a cluster is given to answer.
const lookTime = 30 * time.Second

func (f *lookFlags) connect() (*kube.Client, error) {
	path := f.Kubeconfig
	if path == "" {
		path = kube.Kubeconfig()
	}
	c, err := kube.Connect(kube.ClientOptions{Kubeconfig: path, Context: f.KubeContext, Namespace: f.Namespace, UserAgent: "stillwire"})
	if err != nil {
		return nil, &wrong{err}
	}
	return c, nil
}

// snapshot is the mesh as the cluster says it now.
func (f *lookFlags) snapshot(ctx context.Context, c *kube.Client) (mesh.Snapshot, []mesh.Problem, error) {
	u, err := c.Facts(ctx, f.LocationLabel)
	return f.of(u), u.Problems, err
}

func (f *lookFlags) of(u mesh.Update) mesh.Snapshot {
	var settled mesh.Settings
	if u.Settings != nil {
		settled = *u.Settings
	}
	return mesh.Snapshot{Nodes: u.Nodes, Peers: u.Peers, Settings: settled.Or(f.settings())}
}

type peerConfigCommand struct {
	Name    string `arg:"" help:"The peer."`
	Dir     string `placeholder:"DIR" help:"A directory of manifests, in place of a cluster."`
	KeyFile string `placeholder:"FILE" help:"File with the peer's private key, - for stdin; without it the text says where it belongs."`
	Renew   bool   `help:"Make a new key here, and write its public part into the Peer. The private one is shown and kept nowhere."`
	showFlags
	lookFlags
}

func (peerConfigCommand) Help() string {
	return "All that the peer needs: its addresses, the nodes that it calls, and what is reached through each, pods and services too. A private key is never sent anywhere. What is shown holds secrets when the peer has a preshared key or a private one is given."
}

func (c *peerConfigCommand) Run(p *program) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	if c.Dir != "" {
		return c.fromFiles(p)
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	snapshot, problems, err := c.snapshot(ctx, client)
	if err != nil {
		return err
	}
	if !c.Renew {
		key, err := c.privateKey(p)
		if err != nil {
			return err
		}
		return c.show(p, snapshot, problems, c.Name, key)
	}
	if c.KeyFile != "" {
		return &wrong{errors.New("--renew and --key-file are two keys: leave one out")}
	}
	key, err := device.NewPrivateKey()
	if err != nil {
		return err
	}
	for i := range snapshot.Peers {
		if snapshot.Peers[i].Name == c.Name {
			snapshot.Peers[i].PublicKey = key.Public()
		}
	}
	if _, err := c.render(p, snapshot, problems, c.Name, key); err != nil {
		return err // before anything is changed
	}
	if err := client.SetPeerKey(ctx, c.Name, key.Public()); err != nil {
		return err
	}
	return c.show(p, snapshot, problems, c.Name, key)
}

func (c *peerConfigCommand) fromFiles(p *program) error {
	if c.Renew {
		return &wrong{errors.New("--renew writes to a cluster: with --dir make the key with stillwire genkey, and give it with --key-file")}
	}
	u, err := file.Load(c.Dir)
	if err != nil {
		return &wrong{err}
	}
	key, err := c.privateKey(p)
	if err != nil {
		return err
	}
	return c.show(p, c.of(u), u.Problems, c.Name, key)
}

// privateKey is the one that is given, zero when none is.
func (c *peerConfigCommand) privateKey(p *program) (device.PrivateKey, error) {
	if c.KeyFile == "" {
		return device.PrivateKey{}, nil
	}
	in := p.stdin
	if c.KeyFile != "-" {
		f, err := os.Open(c.KeyFile)
		if err != nil {
			return device.PrivateKey{}, &wrong{err}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxKeyText))
	if err != nil {
		return device.PrivateKey{}, fmt.Errorf("read the key in %s: %w", c.KeyFile, err)
	}
	key, err := device.ParsePrivateKey(strings.TrimSpace(string(text)))
	if err != nil {
		return key, &wrong{fmt.Errorf("%s: %w", c.KeyFile, err)}
	}
	return key, nil
}

type peerAddCommand struct {
	Name                string          `arg:"" help:"Name of the peer."`
	Public              string          `placeholder:"KEY" help:"Public key of the peer, when it has one. Left out: a key is made here, shown, and kept nowhere."`
	AllowedIP           []netip.Prefix  `name:"allowed-ip" placeholder:"CIDR" help:"Network behind the peer."`
	Endpoint            device.Endpoint `placeholder:"HOST:PORT" help:"Where the peer is reached. Left out: it speaks first."`
	PersistentKeepalive uint16          `placeholder:"SECONDS" help:"How often nodes send to the peer (0, never)."`
	showFlags
	lookFlags
}

func (peerAddCommand) Help() string {
	return "Makes a key, takes a free address of the mesh, creates the Peer in the cluster with the public part, and shows what the peer is to have, as stillwire peer config does."
}

func (c *peerAddCommand) Run(p *program) error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	if err := scan.CheckName(c.Name); err != nil {
		return &wrong{err}
	}
	public, private, err := c.keys()
	if err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	snapshot, problems, err := c.snapshot(ctx, client)
	if err != nil {
		return err
	}
	peer := mesh.Peer{
		Identity:  mesh.Identity{Name: c.Name, Created: time.Now(), Source: "peer/" + c.Name},
		PublicKey: public, AllowedIPs: c.AllowedIP, Endpoint: c.Endpoint,
		PersistentKeepalive: time.Duration(c.PersistentKeepalive) * time.Second,
		MeshAddresses:       mesh.FreeAddresses(snapshot, public),
	}
	for _, other := range snapshot.Peers {
		if other.Name == c.Name {
			return fmt.Errorf("there is a peer %s already: choose another name, or show it with stillwire peer config %s", c.Name, c.Name)
		}
	}
	snapshot.Peers = append(snapshot.Peers, peer)
	if _, err := c.render(p, snapshot, problems, c.Name, private); err != nil {
		return err // before anything is created
	}
	if err := client.CreatePeer(ctx, peer); err != nil {
		return err
	}
	return c.show(p, snapshot, problems, c.Name, private)
}

func (c *peerAddCommand) keys() (public device.PublicKey, private device.PrivateKey, err error) {
	if c.Public == "" {
		private, err = device.NewPrivateKey()
		return private.Public(), private, err
	}
	public, f := scan.PublicKey(c.Public)
	if f != nil {
		return public, private, &wrong{fmt.Errorf("--public %s: %s", f.Detail, f.Remedy)}
	}
	return public, private, nil
}
