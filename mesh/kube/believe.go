package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stillwire/stillwire/mesh"
)

// doubtful reports whether so much is missing that one answer is not enough: at the start, when what
// is kept from the last run is not known here, anything.
func (s *Source) doubtful(u mesh.Update) bool {
	if s.first {
		return true
	}
	there := members(u)
	gone := 0
	for uid := range s.held {
		if !there[uid] {
			gone++
		}
	}
	return gone > max(3, len(s.held)/4)
}

// hold takes what is told as what is there.
func (s *Source) hold(u mesh.Update) {
	s.first = false
	s.held = members(u)
}

func members(u mesh.Update) map[types.UID]bool {
	m := make(map[types.UID]bool, len(u.Nodes)+len(u.Peers))
	for _, n := range u.Nodes {
		m[types.UID(n.UID)] = true
	}
	for _, p := range u.Peers {
		m[types.UID(p.UID)] = true
	}
	return m
}

// surelyGone asks etcd, by way of the API server and past its caches, whether nothing is there
// beside what the watches know.
func (s *Source) surelyGone(ctx context.Context) (bool, error) {
	nodes, err := s.client.meshNodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list %s: %w", s.meshNodes.name, err)
	}
	peers, err := s.client.peers.List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list %s: %w", s.peers.name, err)
	}
	for _, n := range nodes.Items {
		if !s.meshNodes.knows(n.Name) {
			return false, nil // the watch will tell of it
		}
	}
	for _, p := range peers.Items {
		if !s.peers.knows(p.Name) {
			return false, nil
		}
	}
	return true, nil
}

// knows reports whether an object of no namespace is known.
func (k *kind) knows(name string) bool {
	_, known, err := k.informer.GetStore().GetByKey(name)
	return known && err == nil
}
