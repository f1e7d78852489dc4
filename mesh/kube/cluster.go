package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2/maybe"
)

// guardLasts is how long an answer of the guard counts: several kinds ask at once.
const guardLasts = 10 * time.Second

// guard keeps the facts of one cluster from being taken for those of another, as when an address
// was given to another API server. A cluster is its namespace kube-system, whose UID is kept in a
// file, so that also a restart notices.
type guard struct {
	ask  func(context.Context) (string, error)
	path string // "": nothing is kept

	mu    sync.Mutex
	known string       // the UID that counts; "": none yet
	where []netip.Addr // the API servers, as they were last known
	asked time.Time    // when it was last seen to be so
}

// otherCluster is another cluster in the place of the one that is known.
type otherCluster struct{ known, found, path string }

func (e *otherCluster) Error() string {
	remedy := "restart the agent"
	if e.path != "" {
		remedy = "remove " + e.path + " and restart the agent"
	}
	return fmt.Sprintf("another cluster answers (its kube-system has the UID %s and not %s), so nothing of it is believed: if it is the new one, %s", e.found, e.known, remedy)
}

// newGuard reads what is known from before.
func newGuard(ask func(context.Context) (string, error), path string) (*guard, error) {
	g := &guard{ask: ask, path: path}
	if path == "" {
		return g, nil
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, word := range strings.Fields(string(text)) {
		if a, err := netip.ParseAddr(word); err == nil && g.known != "" {
			g.where = append(g.where, a)
		} else if g.known == "" {
			g.known = word
		}
	}
	return g, nil
}

// check returns nil if it is the cluster that is known, or the first.
func (g *guard) check(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.asked) < guardLasts {
		return nil
	}
	found, err := g.ask(ctx)
	if err != nil {
		return err
	}
	if g.known == "" {
		if err := g.keep(found); err != nil {
			return err
		}
	}
	if g.known != found {
		return &otherCluster{known: g.known, found: found, path: g.path}
	}
	g.asked = time.Now()
	return nil
}

func (g *guard) keep(uid string) error {
	g.known = uid
	return g.write()
}

// write keeps the UID in the first line, and an address in each line after it.
func (g *guard) write() error {
	if g.path == "" {
		return nil
	}
	text := g.known + "\n"
	for _, a := range g.where {
		text += a.String() + "\n"
	}
	if err := maybe.WriteFile(g.path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("keep which cluster this is: %w", err)
	}
	return nil
}

func (g *guard) addresses() []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.where)
}

// keepAddresses keeps the addresses of the API servers of the cluster that is known. None is no
// news: nobody has said where they are.
func (g *guard) keepAddresses(list []netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortFunc(list, netip.Addr.Compare)
	if len(list) == 0 || g.known == "" || slices.Equal(list, g.where) {
		return nil
	}
	g.where = list
	return g.write()
}
