//go:build linux

package nodes

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// enteredEnv tells the test process that it is in the fabric.
const enteredEnv = "STILLWIRE_TEST_FABRIC"

const (
	bridge       = "fabric"
	fabricLength = 24
	firstNode    = 11 // last byte of the first node's address
	mostNodes    = 200
)

// Address is where the control plane listens: cluster.Options.Address.
func Address() netip.Addr { return netip.AddrFrom4([4]byte{10, 200, 0, 1}) }

// PodCIDR holds the pods of all nodes, each of which gets a part of it: see ControllerFlags.
const PodCIDR = "10.42.0.0/16"

// ControllerFlags have kube-controller-manager give each node its pod CIDR, and notice within
// seconds that a node is gone: cluster.Options.ControllerFlags.
func ControllerFlags() []string {
	return []string{
		"--allocate-node-cidrs", "--cluster-cidr=" + PodCIDR,
		"--node-monitor-period=1s", "--node-monitor-grace-period=12s",
	}
}

// Enter runs the test program a second time, in a network namespace that has the fabric, and ends
// this process with its exit status. In the second it returns, once the bridge is there. TestMain
// calls it before all else.
func Enter() {
	if os.Getenv(enteredEnv) == "" {
		os.Exit(again())
	}
	if err := makeBridge(); err != nil {
		fmt.Fprintln(os.Stderr, "make the fabric:", err)
		os.Exit(1)
	}
}

// again runs this program with its arguments in a new network namespace, and returns its exit
// status.
func again() int {
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), enteredEnv+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = dieWithParent(syscall.CLONE_NEWNET)
	p, err := startOn(cmd, func() error { return nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, "enter the fabric, which needs root:", err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended just now
		case <-p.ended:
			if !cmd.ProcessState.Exited() { // by a signal
				return 1
			}
			return cmd.ProcessState.ExitCode()
		}
	}
}

// makeBridge makes the fabric in the namespace of this process. Nothing is forwarded by it.
func makeBridge() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0o644); err != nil {
		return err
	}
	return ip(
		"link set lo up",
		fmt.Sprintf("link add %s type bridge", bridge),
		fmt.Sprintf("addr add %s/%d dev %s", Address(), fabricLength, bridge),
		fmt.Sprintf("link set %s up", bridge),
	)
}

// ip runs commands of ip(8) in the fabric, each without the word ip.
func ip(commands ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}
