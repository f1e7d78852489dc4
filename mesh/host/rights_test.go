//go:build linux

package host_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

var native = binary.NativeEndian

// withoutNetAdmin runs f on a thread that lacks the right to change the network.
func withoutNetAdmin(f func() error) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return err
	}
	less := have
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&head, &less[0]); err != nil {
		return err
	}
	defer unix.Capset(&head, &have[0])
	return f()
}

// inContainer runs f on a thread for which /proc/sys is read-only, as a container's runtime makes
// it, and that of the machine is mounted at dir.
func inContainer(dir string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends, and its mounts
		done <- errors.Join(
			unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("/proc/sys/net", dir, "", unix.MS_BIND, ""),
			unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""),
			unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
			f(),
		)
	}()
	return <-done
}

func TestContainerSetsSysctlsWhereTheyAreMounted(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	switches := func() string {
		return readFile(t, r.node, "/proc/sys/net/ipv4/ip_forward") + readFile(t, r.node, "/proc/sys/net/ipv6/conf/all/forwarding")
	}
	apply := func() (problems []mesh.Problem) {
		err := inContainer(dir, func() (err error) { _, problems, err = r.try(plan()); return err })
		if err != nil {
			t.Fatal(err)
		}
		return problems
	}
	before := switches()
	problems := apply()
	if len(problems) == 0 || !strings.Contains(problems[0].Remedy, "SysctlDir") || switches() != before {
		t.Errorf("/proc/sys is read-only: problems %v, forwarding %q", problems, switches())
	}
	r.options.SysctlDir = dir
	r.host = r.restarted()
	if problems := apply(); len(problems) != 0 || switches() != "1\n1\n" {
		t.Errorf("with SysctlDir: problems %v, forwarding %q", problems, switches())
	}
	r.options.SysctlDir = "" // uninstall runs on the machine itself
	r.uninstall()
	if after := switches(); after != before {
		t.Errorf("uninstalled: forwarding %q, before %q", after, before)
	}
}

func TestMissingRightIsNamedAndNothingHalfDone(t *testing.T) {
	r := newRig(t)
	before := dump(t, r.node)
	var changes []mesh.HostChange
	var problems []mesh.Problem
	err := r.node.Do(func() error {
		return withoutNetAdmin(func() (err error) {
			changes, problems, err = r.host.Apply(t.Context(), plan())
			return err
		})
	})
	if err != nil || changes != nil {
		t.Errorf("changes %v, error %v", text(changes), err)
	}
	fields := make(map[string]bool)
	for _, p := range problems {
		if p.Reason != mesh.Unsupported || !strings.Contains(p.Remedy, "NET_ADMIN") {
			t.Errorf("problem: %v", p)
		}
		fields[p.Field] = true
	}
	for _, field := range []string{"interface", "firewall", "route", "rule"} {
		if !fields[field] {
			t.Errorf("no problem of the %s: %v", field, problems)
		}
	}
	if after := dump(t, r.node); after != before {
		t.Error("something was changed")
	}
	r.apply(plan())
}

func TestNoNewRouteIntoTheTunnelWithoutTheFirewall(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	r.node.NFT("delete table inet stillwire")
	own := ownedTable(t, r)
	defer unix.Close(own)
	_, problems, err := r.try(with(plan(), "10.3.0.0/24"))
	if err == nil && len(problems) == 0 {
		t.Fatal("a table that another program owns was taken")
	}
	got := r.run("ip", "route", "show", "table", "7107")
	if strings.Contains(got, "10.3.0.0/24 dev") {
		t.Errorf("a route that relies on the firewall was added:\n%s", got)
	}
	if !strings.Contains(got, "unreachable 10.3.0.0/24") || !strings.Contains(got, "10.2.1.0/24 dev stillwire0") {
		t.Errorf("the rest does not go on:\n%s", got)
	}
	t.Logf("problems %v, error %v", problems, err)
}

// ownedTable makes the table for a socket that alone may change it (NFT_TABLE_F_OWNER).
func ownedTable(t *testing.T, r *rig) (fd int) {
	t.Helper()
	err := r.node.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, ownTableBatch("stillwire"), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, 5e9, func() string {
		out, _ := r.tryRun("nft", "list", "tables")
		return strings.TrimSpace(out)
	}, "table inet stillwire")
	return fd
}

func ownTableBatch(name string) (b []byte) {
	message := func(kind, flags uint16, body ...byte) {
		n := uint32(unix.NLMSG_HDRLEN + len(body))
		head := make([]byte, unix.NLMSG_HDRLEN)
		native.PutUint32(head, n)
		native.PutUint16(head[4:], kind)
		native.PutUint16(head[6:], flags)
		b = append(b, append(head, body...)...)
	}
	attribute := func(kind uint16, value ...byte) []byte {
		a := native.AppendUint16(nil, uint16(4+len(value)))
		a = native.AppendUint16(a, kind)
		a = append(a, value...)
		return append(a, make([]byte, -len(a)&3)...)
	}
	const owner = 2
	message(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, 0, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
	body := append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attribute(unix.NFTA_TABLE_NAME, append([]byte(name), 0)...)...)
	message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE, append(body, attribute(unix.NFTA_TABLE_FLAGS, 0, 0, 0, owner)...)...)
	message(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, 0, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
	return b
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, o := range []host.Options{{Interface: "a-name-too-long-for-linux"}, {Protocol: 2}, {Protocol: 256}, {Table: 254}, {Table: -1}, {Priority: 32766}} {
		if _, err := host.New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	if _, err := host.New(host.Options{}); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
