//go:build linux

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// liar is a way to the API server on which lists of MeshNodes that come from a cache, and not
// from etcd, are empty: as of one that lags behind.
type liar struct {
	next http.RoundTripper

	mu     sync.Mutex
	caches bool // lists of caches are empty
	open   map[io.Closer]bool
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	nodes := strings.HasSuffix(r.URL.Path, "/"+v1alpha1.MeshNodes) && r.Method == http.MethodGet
	l.mu.Lock()
	caches := l.caches
	l.mu.Unlock()
	if nodes && q.Get("sendInitialEvents") == "true" {
		return l.answer(r, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`), nil
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil || !nodes || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	if q.Get("watch") != "" {
		l.mu.Lock()
		l.open[resp.Body] = true
		l.mu.Unlock()
		return resp, nil
	}
	if quorum := q.Get("resourceVersion") == ""; caches && !quorum {
		return l.empty(r, resp)
	}
	return resp, nil
}

func (l *liar) answer(r *http.Request, code int, text string) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
}

func (l *liar) empty(r *http.Request, resp *http.Response) (*http.Response, error) {
	defer resp.Body.Close()
	var list map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	list["items"] = []any{}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return l.answer(r, http.StatusOK, string(bytes.TrimSpace(text))), nil
}

// lie ends the watches, and has the lists that follow lose what they hold.
func (l *liar) lie(caches bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.caches = caches
	for c := range l.open {
		c.Close()
		delete(l.open, c)
	}
}

// An answer in which the mesh is missing removes nobody, until etcd itself says so.
func TestAnEmptyAnswerRemovesNobody(t *testing.T) {
	const count = 10
	for i := range count {
		shared.Apply(t, fmt.Sprintf("apiVersion: %s\nkind: MeshNode\nmetadata: {name: partial-%d}\n", v1alpha1.GroupVersion(), i))
	}
	l := &liar{open: make(map[io.Closer]bool)}
	config := rest.CopyConfig(agentOf(t, shared, "partial"))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { l.next = next; return l })
	heard := listen(t, config, kube.SourceOptions{})
	have := func(want int) func() error {
		return func() error {
			s, problems := heard.Snapshot()
			n := 0
			for _, node := range s.Nodes {
				if strings.HasPrefix(node.Name, "partial-") {
					n++
				}
			}
			if n != want {
				return fmt.Errorf("%d nodes are known, want %d, problems %v", n, want, problems)
			}
			return nil
		}
	}
	await(t, 30*time.Second, have(count))
	l.lie(true)
	// Something is told once the empty list was taken in.
	await(t, time.Minute, func() error {
		if len(heard.update().Nodes) > 0 {
			return errors.New("the watch has not begun anew")
		}
		return nil
	})
	await(t, 20*time.Second, func() error {
		p, err := heard.problem(mesh.KindSource, "")
		if err == nil && p.Reason != mesh.RemovalHeld {
			return fmt.Errorf("problem is %v", p)
		}
		return err
	})
	if err := have(count)(); err != nil {
		t.Error(err)
	}
	if _, _, err := shared.Kubectl(t, "delete", "meshnodes", "--all"); err != nil {
		t.Fatal(err)
	}
	l.lie(false)
	await(t, time.Minute, have(0))
}
