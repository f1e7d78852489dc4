//go:build linux

package nodes

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// dump is all that an uninstall must restore on a node.
func dump(t *testing.T, name string) string {
	t.Helper()
	n := two.Node(name)
	var all strings.Builder
	for _, command := range []string{
		"ip link", "ip addr", "ip -4 route show table all", "ip -6 route show table all", "ip -4 rule", "ip -6 rule",
		"nft -s list ruleset",
	} {
		words := strings.Fields(command)
		out, err := n.Exec(t.Context(), words[0], words[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "# %s\n%s", command, out)
	}
	err := n.Do(func() error {
		for _, root := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6"} {
			if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					value, _ := os.ReadFile(path) // some are for writing alone
					fmt.Fprintf(&all, "%s = %s\n", path, strings.TrimSpace(string(value)))
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// difference is the lines that are in one of the two alone.
func difference(before, after string) string {
	var out strings.Builder
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			fmt.Fprintln(&out, "-", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			fmt.Fprintln(&out, "+", line)
		}
	}
	return out.String()
}

// requests is what became of HTTP requests that were made one after the other, each with a
// connection of its own.
type requests struct {
	made, failed int
	slowest      time.Duration
}

func (r requests) String() string {
	return fmt.Sprintf("%d made, %d failed, slowest %v", r.made, r.failed, r.slowest.Round(time.Millisecond))
}

// startRequests has a pod ask another until the function is called.
func startRequests(from, to *pod) (stop func() requests) {
	ctx, cancel := context.WithCancel(context.Background())
	var r requests
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			_, err := from.get(to)
			r.made++
			if err != nil {
				r.failed++
			}
			r.slowest = max(r.slowest, time.Since(began))
		}
	})
	return func() requests {
		cancel()
		work.Wait()
		return r
	}
}
