package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/file"
	"github.com/stillwire/stillwire/mesh/host"
	"github.com/stillwire/stillwire/mesh/scan"
	"github.com/stillwire/stillwire/netstack"
	"github.com/stillwire/stillwire/netstack/gateway"
)

// meshFlags are what all nodes of a mesh must agree on, where the directory does not say it.
type meshFlags struct {
	Topology          string         `enum:"full,location,cross" default:"full" placeholder:"FORM" help:"Which nodes have a tunnel: full, location or cross (full)."`
	Inside            string         `enum:"native,vxlan,ipip,geneve,encrypted" default:"native" placeholder:"WAY" help:"How nodes of one location reach each other: native, vxlan, ipip, geneve or encrypted (native)."`
	Subnet            []netip.Prefix `placeholder:"CIDR" help:"Where mesh addresses are taken from, one of each family (10.4.0.0/16)."`
	ClusterCIDR       []netip.Prefix `name:"cluster-cidr" placeholder:"CIDR" help:"Holds the pods of all nodes: what is not known to be a node's leaves by no way."`
	ServiceCIDR       []netip.Prefix `name:"service-cidr" placeholder:"CIDR" help:"Addresses of the cluster's services, which stay out of the tunnels."`
	IgnoreInternalIPs bool           `name:"ignore-internal-ips" help:"Treat every node as if it had no internal IP."`
	AllowDefaultRoute bool           `help:"Let nodes and peers have 0.0.0.0/0 and ::/0."`
}

// settings leave open what has its default.
func (f *meshFlags) settings() mesh.Settings {
	s := mesh.Settings{
		Subnets: f.Subnet, ClusterCIDRs: f.ClusterCIDR, ServiceCIDRs: f.ServiceCIDR,
		IgnoreInternalIPs: f.IgnoreInternalIPs, AllowDefaultRoute: f.AllowDefaultRoute,
	}
	if f.Topology != string(mesh.Full) {
		s.Topology = mesh.Topology(f.Topology)
	}
	if f.Inside != string(mesh.Native) {
		s.Inside = mesh.Encapsulation(f.Inside)
	}
	return s
}

// nodeName is the name of this node, or the one that is given.
func nodeName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host name cannot be read (%w): give --node", err)
	}
	return name, nil
}

// hostFlags are what of the machine belongs to the agent.
type hostFlags struct {
	Interface string `default:"stillwire0" placeholder:"NAME" help:"Name of the tunnel's interface (stillwire0)."`
	Table     int    `default:"7107" placeholder:"N" help:"Routing table for the mesh, with the two after it (7107)."`
	Priority  int    `default:"7106" placeholder:"N" help:"Priority of the first routing rules (7106)."`
	FwMark    uint32 `name:"fwmark" default:"0x3053" placeholder:"MARK" help:"Mark of the packets that carry the tunnels (0x3053)."`
	CNIFile   string `name:"cni-file" placeholder:"FILE" help:"Write a CNI configuration for the pods of this node there, such as /etc/cni/net.d/10-stillwire.conflist: where there is no other network of pods."`
	SysctlDir string `default:"/proc/sys/net" placeholder:"DIR" help:"Sysctls of the network are read and written in this folder: in a container, where the machine's are mounted (/proc/sys/net)."`
	StateDir  string `default:"/var/lib/stillwire" placeholder:"DIR" help:"Key, learnt endpoints and last known facts are kept in this folder (/var/lib/stillwire)."`
}

func (f *hostFlags) options(log zerolog.Logger) host.Options {
	return host.Options{
		Interface: f.Interface, Table: f.Table, Priority: f.Priority, FwMark: f.FwMark,
		CNIFile: f.CNIFile, SysctlDir: f.SysctlDir, StateDir: f.StateDir, Log: log,
	}
}

type agentCommand struct {
	factFlags
	Node string `placeholder:"NAME" help:"Name of this node (the host name)."`
	meshFlags
	hostFlags
	Mode         string        `enum:"auto,tun,netstack" default:"auto" placeholder:"MODE" help:"Carry packets by a kernel TUN (tun) or without privileges (netstack); auto finds out."`
	Standby      bool          `help:"While another agent serves the interface, wait, and take its place when it ends."`
	KeyFile      string        `placeholder:"FILE" help:"File of the private key, made when there is none (key in the state folder)."`
	Masquerade   bool          `help:"Give packets of pods to the world the address of this node."`
	ForwardRules bool          `help:"Put a rule into each foreign firewall chain that would drop forwarded packets."`
	Repair       bool          `default:"true" negatable:"" help:"Watch routes, rules and firewall, and repair what others change."`
	ResyncPeriod time.Duration `default:"10m" placeholder:"TIME" help:"Compare everything this often although nothing is known to have changed (10m); 0 never."`
	UAPI         string        `name:"uapi" placeholder:"DIR" help:"Socket for wg(8), such as /var/run/wireguard."`
	serviceFlags
	NoGSO     bool `name:"no-gso" help:"Send UDP packets one by one (no segmentation offload)."`
	NoGRO     bool `name:"no-gro" help:"Receive UDP packets one by one (no receive offload)."`
	NoOffload bool `name:"no-offload" help:"Take packets from the TUN one by one."`
	logFlags
}

// serviceFlags are the services of a node in netstack mode, whose machine has no other way into the
// mesh.
type serviceFlags struct {
	SOCKS5  []string     `name:"socks5" sep:"none" placeholder:"LISTEN" help:"In netstack mode: SOCKS5 proxy into the mesh, such as 127.0.0.1:1080."`
	HTTP    []string     `name:"http" sep:"none" placeholder:"LISTEN" help:"In netstack mode: HTTP proxy into the mesh, such as 127.0.0.1:8080."`
	Forward []string     `sep:"none" placeholder:"NET/LISTEN=TARGET" help:"In netstack mode: port here to a target in the mesh."`
	Publish []string     `sep:"none" placeholder:"NET/PORT=TARGET" help:"In netstack mode: port at the mesh address to a target here."`
	Open    bool         `help:"Allow listeners that other machines can reach without a credential."`
	DNS     []netip.Addr `name:"dns" placeholder:"ADDRESS" help:"In netstack mode: server in the mesh that resolves names."`
}

// asked names the first service that is asked for, "" when none is.
func (f *serviceFlags) asked() string {
	for flag, values := range map[string][]string{"--socks5": f.SOCKS5, "--http": f.HTTP, "--forward": f.Forward, "--publish": f.Publish} {
		if len(values) > 0 {
			return flag
		}
	}
	return ""
}

// services is the gateway on a node in netstack mode; nil: nothing is asked for.
func (f *serviceFlags) services(n *netstack.Net, log zerolog.Logger) *gateway.Gateway {
	if f.asked() == "" {
		return nil
	}
	return gateway.New(gateway.Options{Unwatched: true, Log: log, Sources: gateway.Sources{
		Given:  map[string]*netstack.Net{"mesh": n},
		SOCKS5: f.SOCKS5, HTTP: f.HTTP, Forward: f.Forward, Publish: f.Publish, Open: f.Open,
	}})
}

func (agentCommand) Help() string {
	return `Makes this machine a node of a mesh, and keeps it one: device, addresses, routes, rules and firewall follow what a directory of manifests (--dir) or a Kubernetes cluster (--in-cluster, --join) says, and only what differs is touched.

SIGTERM and SIGINT end the agent and take nothing away: what would go through the tunnel waits for the next agent. stillwire uninstall restores the machine.`
}

func (c *agentCommand) Run(p *program) error {
	log := c.logger(p.stderr)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := c.run(ctx, log)
	if err == nil || c.console(p.stderr) {
		return err
	}
	log.Error().Err(err).Msg("agent has ended")
	return reported{codeOf(err)}
}

// run opens what the agent needs, and runs it.
func (c *agentCommand) run(ctx context.Context, log zerolog.Logger) error {
	name, err := nodeName(c.Node)
	if err != nil {
		return err
	}
	if err := scan.CheckName(name); err != nil {
		return &wrong{fmt.Errorf("--node: %w", err)}
	}
	facts, err := c.factFlags.open(c, name, log)
	if err != nil {
		return err
	}
	keyFile := cmp.Or(c.KeyFile, filepath.Join(c.StateDir, "key"))
	key, made, err := file.Key(keyFile)
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("the key of this node cannot be kept: %w: give --state-dir a folder that this user may write", err)
	}
	if err != nil {
		return &wrong{err}
	}
	if made {
		log.Info().Str("file", keyFile).Msg("a private key was made for this node")
	}
	o := mesh.AgentOptions{
		Node: name, Key: key, Sources: facts.sources, Publisher: facts.publisher, Report: facts.report, ControlPlane: facts.control, Settings: c.settings(),
		Memory: file.Memory{Path: filepath.Join(c.StateDir, "facts")}, ResyncPeriod: c.ResyncPeriod, Log: log,
	}
	below, err := c.stand(ctx, log)
	if err != nil {
		return err
	}
	below.into(&o)
	agent, err := mesh.NewAgent(o)
	ctx, end := context.WithCancel(ctx)
	waitAdmin := func() {}
	if err == nil {
		waitAdmin = serveAdmin(ctx, filepath.Join(c.StateDir, socketName), agent, log)
	}
	var services sync.WaitGroup
	var served error // why the services have ended
	if below.services != nil && err == nil {
		services.Go(func() {
			defer end()
			served = below.services.Run(ctx)
		})
	}
	if facts.run != nil && err == nil {
		services.Go(func() { facts.run(ctx) })
	}
	if err == nil {
		log.Info().Str("node", name).Str("mode", string(o.Mode)).Str("because", below.reason).Stringer("public_key", key.Public()).Msg("agent is starting")
		err = agent.Run(ctx)
	}
	end()
	waitAdmin()
	services.Wait()
	if served != nil {
		err = errors.Join(err, wrongInput(served))
	}
	log.Info().Msg("agent has ended, what it made stays")
	return errors.Join(err, below.device.Close())
}

// ground is what an agent stands on, in either mode.
type ground struct {
	mode   mesh.Mode
	reason string // for the choice of the mode
	device *device.Device
	host   mesh.Host
	fwmark uint32
	listen listenPacket
	// services run beside the agent; nil: none.
	services *gateway.Gateway
}

func (g *ground) into(o *mesh.AgentOptions) {
	o.Mode, o.Because = g.mode, g.reason
	o.Device, o.Host, o.FwMark, o.ListenPacket = g.device, g.host, g.fwmark, g.listen
}

// stand chooses the mode and opens the device.
func (c *agentCommand) stand(ctx context.Context, log zerolog.Logger) (*ground, error) {
	if c.Mode == string(mesh.Netstack) {
		return c.openNetstack(log, "asked for")
	}
	g, err := c.openTUN(ctx, log)
	if flag := c.asked(); err == nil && flag != "" {
		_ = g.device.Close() // the other error says more
		return nil, &wrong{fmt.Errorf("%s is for netstack mode: with a TUN all programs of this machine reach the mesh; leave it out, or add --mode netstack", flag)}
	}
	switch {
	case err == nil && c.Mode == "auto":
		g.reason = "this process may use a TUN"
	case err == nil:
		g.reason = "asked for"
	case c.Mode == "auto" && (errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist)):
		return c.openNetstack(log, fmt.Sprintf("no TUN can be had here (%v)", err))
	}
	return g, err
}

func (c *agentCommand) bind() device.BindOptions {
	return device.BindOptions{NoGSO: c.NoGSO, NoGRO: c.NoGRO}
}

type uninstallCommand struct {
	hostFlags
	logFlags
}

func (uninstallCommand) Help() string {
	return "Takes away what an agent made on this machine: interface, routes, rules, firewall table, sysctls. The agent must not run. The key and what else is in the state folder stays."
}

func (c *uninstallCommand) Run(p *program) error {
	changes, err := host.Uninstall(context.Background(), c.options(c.logger(p.stderr)))
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: run as root, or with the capability NET_ADMIN", err)
	}
	for _, change := range changes {
		if failed := p.println(fmt.Sprintf("removed %s %s", change.What, change.Name)); failed != nil {
			return failed
		}
	}
	return err
}
