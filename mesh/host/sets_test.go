//go:build linux

package host

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestIntervalsComeBackFromElements(t *testing.T) {
	all := prefixes("0.0.0.0/8", "10.2.0.0/24", "10.2.1.0/24", "10.2.3.4/32", "255.0.0.0/8", "::/127", "fd02::/48", "fd02:0:1::/48", "ff00::/8")
	for _, family := range families() {
		want := intervals(all, family)
		elements := toElements(want, true)
		rand.Shuffle(len(elements), func(i, j int) { elements[i], elements[j] = elements[j], elements[i] })
		if diff := cmp.Diff(want, fromElements(elements, true), cmp.AllowUnexported(interval{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		var names, wantNames []string
		for _, i := range want {
			names = append(names, i.String())
		}
		for _, p := range all {
			if familyOf(p.Addr()) == family {
				wantNames = append(wantNames, p.String())
			}
		}
		if diff := cmp.Diff(wantNames, names); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	}
	if got := intervals(prefixes("0.0.0.0/0"), unix.AF_INET); len(got) != 1 || got[0].to != "" || got[0].String() != "0.0.0.0/0" {
		t.Errorf("all of IPv4: %v", got)
	}
}

func TestDifferenceAppliedMakesTheWanted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func() (out []interval) {
		for i := range 64 {
			if random.IntN(2) == 0 {
				out = append(out, intervalOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16+random.IntN(3)).Masked()))
			}
		}
		return out
	}
	for range 200 {
		have, want := some(), some()
		add, remove := diffElements(have, want)
		got := slices.DeleteFunc(slices.Clone(have), func(i interval) bool { return slices.Contains(remove, i) })
		got = sorted(append(got, add...))
		if !slices.Equal(got, want) {
			t.Fatalf("have %v, want %v: add %v, remove %v", have, want, add, remove)
		}
		if add, remove := diffElements(want, want); add != nil || remove != nil {
			t.Fatalf("from a set to itself: add %v, remove %v", add, remove)
		}
	}
}

func TestContainsAgreesWithPrefixes(t *testing.T) {
	list := prefixes("10.2.0.0/24", "10.2.1.0/25", "255.255.0.0/16")
	in := intervals(list, unix.AF_INET)
	for _, text := range []string{"10.1.255.255", "10.2.0.0", "10.2.0.255", "10.2.1.0", "10.2.1.127", "10.2.1.128", "255.254.255.255", "255.255.255.255"} {
		a := netip.MustParseAddr(text)
		want := slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
		if got := contains(in, a.AsSlice()); got != want {
			t.Errorf("%s: %t", a, got)
		}
	}
}
