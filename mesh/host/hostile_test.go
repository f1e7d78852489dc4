//go:build linux

package host_test

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// churn makes and removes a route, or an element of a set, of a foreign agent.
func churn(route *netlink.Handle, nft *nftables.Conn, set *nftables.Set, i int) error {
	dst := &net.IPNet{IP: net.IPv4(10, 200, byte(i), 0), Mask: net.CIDRMask(24, 32)}
	foreign := &netlink.Route{Dst: dst, Gw: net.IPv4(192, 0, 2, 2), Protocol: 17}
	if err := route.RouteReplace(foreign); err != nil {
		return err
	}
	if err := route.RouteDel(foreign); err != nil {
		return err
	}
	element := []nftables.SetElement{{Key: []byte{10, 200, byte(i), 1}}}
	if err := nft.SetAddElements(set, element); err != nil {
		return err
	}
	if err := nft.Flush(); err != nil {
		return err
	}
	if err := nft.SetDeleteElements(set, element); err != nil {
		return err
	}
	return nft.Flush()
}

func TestWhatOthersDoWithTheirOwnCostsNothing(t *testing.T) {
	const changes, rounds = 4, 2000
	r := newRig(t)
	r.node.NFT("add table ip other", "add set ip other churned { type ipv4_addr ; }")
	hostile := func() (took, used time.Duration) {
		err := r.node.Do(func() error {
			route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer route.Close()
			nft, err := nftables.New(nftables.AsLasting())
			if err != nil {
				return err
			}
			defer nft.CloseLasting()
			set := &nftables.Set{Table: &nftables.Table{Name: "other", Family: nftables.TableFamilyIPv4}, Name: "churned", KeyType: nftables.TypeIPAddr}
			begun, before := time.Now(), cpu()
			for i := range rounds {
				if err := churn(route, nft, set, i); err != nil {
					return err
				}
			}
			took, used = time.Since(begun), cpu()-before
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return took, used
	}
	tookAlone, alone := hostile()
	r.apply(plan())
	k := r.keep(plan())
	k.quiet()
	looks := k.looks.Load()
	took, watched := hostile()
	k.quiet()
	if n := k.looks.Load() - looks; n != 0 {
		t.Errorf("%d looks at what is not ours", n)
	}
	t.Logf("%d changes at %.0f a second (without us %.0f): to read past them takes %v of %v, %.1f%% of a CPU", changes*rounds,
		changes*rounds/took.Seconds(), changes*rounds/tookAlone.Seconds(), (watched - alone).Round(time.Millisecond), took.Round(time.Millisecond), 100*(watched-alone).Seconds()/took.Seconds())
}

func TestFightIsNamedAndSlowsDown(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	k := r.keep(plan())
	k.quiet()
	begun := time.Now()
	for i := range 5 {
		r.node.IP("route del 10.2.1.0/24 dev stillwire0 table 7107")
		for k.repairs.Load() <= int64(i) {
			if time.Since(begun) > 30*time.Second {
				t.Fatalf("%d repairs", k.repairs.Load())
			}
			<-time.After(5 * time.Millisecond)
		}
		t.Logf("repair %d after %v", i+1, time.Since(begun).Round(time.Millisecond))
	}
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("5 repairs in %v", took)
	}
	problems := *k.problems.Load()
	if len(problems) != 1 || problems[0].Reason != mesh.Contended || problems[0].Value != "10.2.1.0/24" || problems[0].Field != "route" {
		t.Errorf("problems: %v", problems)
	}
}

func TestStormOfOursEndsInOrder(t *testing.T) {
	r := newRig(t)
	r.apply(plan())
	whole := r.ours()
	k := r.keep(plan())
	k.quiet()
	// A storm of routes with our number in our table.
	var batch []string
	for i := range 60000 {
		batch = append(batch, fmt.Sprintf("route add 10.%d.%d.%d/32 via 192.0.2.2 table 7107 proto 107", 100+i>>16, i>>8&255, i&255))
	}
	r.node.IP(strings.Join(batch, "\n"))
	r.node.IP("rule del pref 7107")
	await(t, 30*time.Second, r.ours, whole)
}

func TestNoRepairLeavesWhatIsOursToTheNextApply(t *testing.T) {
	r := newRig(t, func(o *host.Options) { o.NoRepair = true })
	r.apply(plan())
	whole := r.ours()
	k := r.keep(plan())
	k.quiet()
	looks := k.looks.Load()
	r.node.IP("route del 10.2.1.0/24 dev stillwire0 table 7107", "rule del pref 7107")
	r.node.NFT("delete table inet stillwire")
	k.quiet()
	if n := k.looks.Load() - looks; n != 0 {
		t.Errorf("%d looks", n)
	}
	r.apply(plan())
	await(t, time.Second, r.ours, whole)
}
