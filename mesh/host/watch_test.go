//go:build linux

package host_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/host"
)

// keeper is what an agent does with a host: it applies one plan whenever it is told to look.
type keeper struct {
	r        *rig
	plan     mesh.HostPlan
	again    chan struct{}
	looks    atomic.Int64
	repairs  atomic.Int64
	problems atomic.Pointer[[]mesh.Problem]
}

// keep runs until the test ends.
func (r *rig) keep(p mesh.HostPlan) *keeper {
	r.t.Helper()
	k := &keeper{r: r, plan: p, again: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	wake := func() {
		select {
		case k.again <- struct{}{}:
		default:
		}
	}
	work.Go(func() {
		if err := r.node.Do(func() error { return r.host.Run(ctx, wake) }); err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	work.Go(func() { k.loop(ctx) })
	r.t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return k
}

func (k *keeper) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.again:
		}
		k.looks.Add(1)
		changes, problems, err := k.r.try(k.plan)
		if err != nil && ctx.Err() == nil {
			k.r.t.Errorf("apply: %v", err)
		}
		k.problems.Store(&problems)
		if changes != nil {
			k.repairs.Add(1)
		}
	}
}

// quiet waits until nothing has been looked at for a while.
func (k *keeper) quiet() {
	k.r.t.Helper()
	for {
		before := k.looks.Load()
		<-time.After(1200 * time.Millisecond)
		if k.looks.Load() == before {
			return
		}
	}
}

// await looks until two texts are one.
func await(t *testing.T, atMost time.Duration, got func() string, want string) (took time.Duration) {
	t.Helper()
	begun := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for got() != want {
		if time.Since(begun) > atMost {
			t.Fatalf("after %v:\n%s\nwant:\n%s", atMost, got(), want)
		}
		<-tick.C
	}
	return time.Since(begun)
}

// ours is all that is ours on the node, without indexes.
func (r *rig) ours() string {
	r.t.Helper()
	var all []string
	link, _ := r.tryRun("ip", "-o", "link", "show", "dev", "stillwire0")
	_, link, _ = strings.Cut(link, ": ")
	all = append(all, link)
	for _, args := range []string{"-4 route show table 7107", "-6 route show table 7107", "-4 route show table 7108", "-6 route show table 7108", "-4 route show table 7109", "-6 route show table 7109", "-4 rule", "-6 rule", "-br addr show dev stillwire0"} {
		out, err := r.tryRun("ip", strings.Fields(args)...)
		all = append(all, out, fmt.Sprint(err))
	}
	all = append(all, readFile(r.t, r.node, "/proc/sys/net/ipv4/ip_forward"))
	return strings.Join(append(all, r.run("nft", "-s", "list", "ruleset")), "\n")
}

func TestWhatOthersRemoveIsBackWithinASecond(t *testing.T) {
	for name, damage := range map[string]func(*rig){
		"route":         func(r *rig) { r.node.IP("route del 10.2.1.0/24 dev stillwire0 table 7107") },
		"route beneath": func(r *rig) { r.node.IP("route del unreachable 10.2.1.0/24 table 7107") },
		"IPv6 route":    func(r *rig) { r.node.IP("route del fd04::2 dev stillwire0 table 7107") },
		"whole table": func(r *rig) {
			r.node.IP("route flush table 7107")
			r.run("ip", "-6", "route", "flush", "table", "7107")
		},
		"route replaced": func(r *rig) { r.node.IP("route replace 10.2.1.0/24 via 192.0.2.9 table 7107 proto 107") },
		"foreign route":  func(r *rig) { r.node.IP("route add 10.77.0.0/24 via 192.0.2.9 table 7107 proto 107") },
		"rule":           func(r *rig) { r.node.IP("rule del pref 7107") },
		"IPv6 rule":      func(r *rig) { r.run("ip", "-6", "rule", "del", "pref", "7107") },
		"last table": func(r *rig) {
			r.node.IP("route flush table 7108")
			r.run("ip", "-6", "route", "flush", "table", "7108")
		},
		"last rules":     func(r *rig) { r.node.IP("rule del pref 32764", "rule del pref 32765") },
		"address":        func(r *rig) { r.node.IP("addr del 10.4.0.1/32 dev stillwire0") },
		"link down":      func(r *rig) { r.node.IP("link set stillwire0 down") },
		"MTU":            func(r *rig) { r.node.IP("link set stillwire0 mtu 1300") },
		"link":           func(r *rig) { r.node.IP("link del stillwire0") },
		"sysctl":         func(r *rig) { r.node.Sysctl("net/ipv4/ip_forward", "0") },
		"nft table":      func(r *rig) { r.node.NFT("delete table inet stillwire") },
		"nft ruleset":    func(r *rig) { r.node.NFT("flush ruleset") },
		"nft chain":      func(r *rig) { r.node.NFT("flush chain inet stillwire in") },
		"nft rule added": func(r *rig) { r.node.NFT("add rule inet stillwire out accept") },
		"nft element":    func(r *rig) { r.node.NFT("delete element inet stillwire tunnelled4 { 10.2.1.0/24 }") },
		"nft elements":   func(r *rig) { r.node.NFT("flush set inet stillwire tunnelled6") },
		"nft set added":  func(r *rig) { r.node.NFT("add set inet stillwire more { type ipv4_addr ; }") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.apply(plan())
			k := r.keep(plan())
			k.quiet()
			whole := r.ours() // not before: the kernel takes its time to tell that the TUN has no carrier
			damage(r)
			took := await(t, 5*time.Second, r.ours, whole)
			t.Logf("back after %v", took.Round(time.Millisecond))
			if took > time.Second {
				t.Errorf("back after %v", took)
			}
			k.quiet()
			if n := k.repairs.Load(); n != 1 {
				t.Errorf("%d repairs for one damage", n)
			}
		})
	}
}

func TestForeignDropPolicyIsNoticedWhenItComes(t *testing.T) {
	for _, opened := range []bool{false, true} {
		r := newRig(t, func(o *host.Options) { o.ForwardRules = opened })
		r.apply(plan())
		k := r.keep(plan())
		k.quiet()
		looks := k.looks.Load()
		r.node.NFT("add table ip kube", "add chain ip kube forward { type filter hook forward priority 0 ; }", "add chain ip kube nat { type nat hook postrouting priority 100 ; }")
		for i := range 100 { // as a kube-proxy goes on
			r.node.NFT("add chain ip kube forward { type filter hook forward priority 0 ; }", fmt.Sprintf("add chain ip kube svc%d", i), fmt.Sprintf("add rule ip kube svc%d counter accept", i))
		}
		k.quiet()
		if n := k.looks.Load() - looks; n != 0 {
			t.Errorf("%d looks at chains that drop nothing", n)
		}
		r.node.NFT("add table ip filter", "add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }")
		k.quiet()
		rules := strings.Count(r.run("nft", "list", "table", "ip", "filter"), "stillwire forwards")
		if problems := *k.problems.Load(); opened && (len(problems) != 0 || rules != 2) || !opened && (len(problems) != 1 || rules != 0) {
			t.Errorf("opened %t: problems %v, %d rules", opened, problems, rules)
		}
		r.node.NFT("flush chain ip filter FORWARD")
		k.quiet()
		if rules := strings.Count(r.run("nft", "list", "table", "ip", "filter"), "stillwire forwards"); opened && rules != 2 {
			t.Errorf("%d rules after they were removed", rules)
		}
		r.node.NFT("delete table ip filter")
		k.quiet()
		if problems := *k.problems.Load(); len(problems) != 0 {
			t.Errorf("problems after the policy has gone: %v", problems)
		}
	}
}
