package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
)

// api lists and watches objects of one kind.
type api[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// kind is the objects of one kind, as they are known here.
type kind struct {
	name     string // "nodes"
	informer cache.SharedIndexInformer
	again    func() // something has changed

	mu     sync.Mutex
	failed error     // why it can be neither listed nor watched; nil: it can
	since  time.Time // when that began
}

// newKind watches objects and keeps of each what strip leaves. select limits what is listed. Before
// each list and watch the guard is asked.
func newKind[L runtime.Object](name string, a api[L], example runtime.Object, limit func(*metav1.ListOptions), strip cache.TransformFunc, guard func(context.Context) error, again func()) (*kind, error) {
	k := &kind{name: name, again: again}
	ask := func(ctx context.Context, call func(context.Context) error) error {
		err := guard(ctx)
		if err == nil {
			err = call(ctx)
		}
		k.note(ctx, err)
		return err
	}
	k.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
			limit(&o)
			return list, ask(ctx, func(ctx context.Context) (err error) { list, err = a.List(ctx, o); return err })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
			limit(&o)
			return w, ask(ctx, func(ctx context.Context) (err error) { w, err = a.Watch(ctx, o); return err })
		},
	}, example, 0, cache.Indexers{})
	if err := k.informer.SetTransform(strip); err != nil {
		return nil, err
	}
	_, err := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { again() },
		UpdateFunc: func(any, any) { again() },
		DeleteFunc: func(any) { again() }, // a tombstone as well: the store is looked at, not the event
	})
	return k, err
}

// note keeps whether the kind can be asked for. An old resource version is no failure: the list that
// follows has a new one.
func (k *kind) note(ctx context.Context, err error) {
	if ctx.Err() != nil || err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if (err == nil) != (k.failed == nil) {
		k.since = time.Now()
		defer k.again()
	}
	k.failed = err
}

// down is why the kind cannot be asked for, once that has lasted for as long as is given; "": it
// can. wait is how long that is still to last, 0: no failure is known.
func (k *kind) down(lasts time.Duration) (why string, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed == nil {
		return "", 0
	}
	if left := lasts - time.Since(k.since); left > 0 {
		return "", left
	}
	return explain(k.name, k.failed), 0
}

// explain says what to do about an error of the API server.
func explain(kind string, err error) string {
	var other *otherCluster
	switch {
	case errors.As(err, &other):
		return other.Error()
	case apierrors.IsNotFound(err) && !strings.HasSuffix(kind, "."+v1alpha1.Group):
		return fmt.Sprintf("the API server knows no %s: name the program that gives pods their addresses", kind)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server knows no %s: apply the custom resource definitions", kind)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the API server does not allow to list %s (%v): apply the cluster role", kind, err)
	case apierrors.IsUnauthorized(err):
		return "the API server does not know who this is (401): see whether the token or certificate has run out"
	}
	return fmt.Sprintf("the API server cannot be asked for %s: %v", kind, err)
}
