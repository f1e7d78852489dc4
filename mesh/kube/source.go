package kube

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/stillwire/stillwire/mesh"
	"github.com/stillwire/stillwire/mesh/kube/v1alpha1"
	"github.com/stillwire/stillwire/mesh/scan"
)

// sourceName is what updates call this source.
const sourceName = "kubernetes"

const (
	// patience is how long the API server may fail before it is said to be down: longer than it
	// takes to go over to another one.
	patience = 5 * time.Second
	// believeAgain is how long after a failure it is asked again whether what is missing is gone.
	believeAgain = 5 * time.Second
	// doubtAgain is how long after it said that they are not.
	doubtAgain = time.Minute
)

// SourceOptions of a Source.
type SourceOptions struct {
	// LocationLabel of Nodes; "": DefaultLocationLabel.
	LocationLabel string
	// PodCIDRs is who gives pods their addresses; "": OfNode.
	PodCIDRs PodCIDRs
	// ClusterFile keeps which cluster this is, mode 0600; "": nothing does, and a restart takes any
	// for it.
	ClusterFile string
	// Log is told when the cluster cannot be asked. Problems are in the updates.
	Log zerolog.Logger
}

// Source is a cluster, as a mesh.Source.
type Source struct {
	client  *Client
	label   string
	log     zerolog.Logger
	changed chan struct{}

	nodes, meshNodes, peers, secrets, configs *kind
	// endpoints say where the API servers are. Who may not read them goes on without.
	endpoints *kind
	guard     *guard
	pods      *kind // objects of another program that say which pods a node has; nil: the Nodes do
	podKind   podKind

	// What follows belongs to the goroutine of Run.
	read  map[string]readNodes // by name, what objects said when they were last looked at
	held  map[types.UID]bool   // members that were believed to be there
	first bool                 // nothing has been told yet
	asked time.Time            // when etcd was last asked what is missing; zero: never
	last  *mesh.Settings       // the last that could be obeyed; nil: none
}

var _ mesh.Source = (*Source)(nil)

// NewSource returns a Source that asks nobody before Run. Its error is that of ClusterFile.
func NewSource(c *Client, o SourceOptions) (*Source, error) {
	g, err := newGuard(c.cluster, o.ClusterFile)
	if err != nil {
		return nil, err
	}
	s := &Source{
		client: c, label: cmp.Or(o.LocationLabel, DefaultLocationLabel), log: o.Log,
		changed: make(chan struct{}, 1), first: true, guard: g,
	}
	if s.podKind, err = podKinds(o.PodCIDRs); err != nil {
		return nil, err
	}
	return s, s.watchAll(g)
}

func (s *Source) watchAll(g *guard) (err error) {
	all := func(*metav1.ListOptions) {}
	own := func(o *metav1.ListOptions) { o.LabelSelector = SecretLabel }
	settings := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + SettingsName }
	label := func(name string) bool { return name == s.label }
	none := func(string) bool { return false }
	if s.nodes, err = newKind("nodes", s.client.nodes, &corev1.Node{}, all, stripNode(label, none), g.check, s.again); err != nil {
		return err
	}
	if s.meshNodes, err = newKind("meshnodes."+v1alpha1.Group, s.client.meshNodes, &v1alpha1.MeshNode{}, all, stripMeshNode, g.check, s.again); err != nil {
		return err
	}
	if s.peers, err = newKind("peers."+v1alpha1.Group, s.client.peers, &v1alpha1.Peer{}, all, stripPeer, g.check, s.again); err != nil {
		return err
	}
	if r := s.podKind.resource; r.Resource != "" {
		if s.pods, err = newKind(r.GroupResource().String(), api[*unstructured.UnstructuredList](s.client.others.Resource(r)), &unstructured.Unstructured{}, all, stripOther, g.check, s.again); err != nil {
			return err
		}
	}
	if s.endpoints, err = newKind("endpointslices", s.client.slices, &discoveryv1.EndpointSlice{}, onlyAPIService, stripSlice, g.check, s.again); err != nil {
		return err
	}
	if s.configs, err = newKind("configmaps", s.client.configs, &corev1.ConfigMap{}, settings, stripConfigMap, g.check, s.again); err != nil {
		return err
	}
	s.secrets, err = newKind("secrets", s.client.secrets, &corev1.Secret{}, own, stripSecret, g.check, s.again)
	return err
}

func (s *Source) kinds() []*kind {
	list := []*kind{s.nodes, s.meshNodes, s.peers, s.secrets, s.configs}
	if s.pods != nil {
		list = append(list, s.pods)
	}
	return list
}

// again asks for another look. It never blocks.
func (s *Source) again() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run hands over what the cluster says, at first once all kinds have been listed, and after each
// change, until ctx is done. Its error is always nil: a cluster that cannot be asked is an update
// that is Down.
func (s *Source) Run(ctx context.Context, put func(mesh.Update)) error {
	ctx = klog.NewContext(ctx, logr.Discard()) // what it would say is in the updates
	s.client.reach.onChange(s.again)
	var work sync.WaitGroup
	defer work.Wait()
	for _, k := range append(s.kinds(), s.endpoints) {
		work.Go(func() { k.informer.RunWithContext(ctx) })
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	work.Go(func() { // an empty list is no event
		if cache.WaitForCacheSync(ctx.Done(), s.synced) {
			s.again()
		}
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-timer.C:
		}
		if wait := s.turn(ctx, put); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// turn looks at all that is known and hands it over. It returns when to do so again although
// nothing has changed, 0: never.
func (s *Source) turn(ctx context.Context, put func(mesh.Update)) (wait time.Duration) {
	why, wait := s.down()
	switch {
	case why != "":
		put(mesh.Update{Source: sourceName, Down: why})
		return wait
	case !s.synced():
		return cmp.Or(wait, patience)
	}
	s.keepAddresses()
	u := s.look()
	put(u)
	if !s.doubtful(u) {
		s.hold(u)
		return wait
	}
	// Not while requests fail, and not for each of a thousand that join at once.
	if left := believeAgain - time.Since(s.asked); wait > 0 || left > 0 {
		return max(wait, left, 1)
	}
	s.asked = time.Now()
	ask, cancel := context.WithTimeout(ctx, believeAgain)
	defer cancel()
	gone, err := s.surelyGone(ask)
	if err != nil {
		s.log.Warn().Err(err).Msg("many members have vanished at once, and the API server does not confirm it: they are kept")
		return cmp.Or(wait, believeAgain)
	}
	if !gone {
		return cmp.Or(wait, doubtAgain)
	}
	u.Confirmed = true
	put(u)
	s.hold(u)
	return wait
}

// down is why the API server cannot be reached, or the first kind's reason that has one.
func (s *Source) down() (why string, wait time.Duration) {
	why, wait = s.client.reach.down(patience)
	for _, k := range s.kinds() {
		reason, left := k.down(patience)
		why = cmp.Or(why, reason)
		if left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return why, wait
}

func (s *Source) synced() bool {
	for _, k := range s.kinds() {
		if !k.informer.HasSynced() {
			return false
		}
	}
	return true
}

// look reads all objects that changed since the last look.
func (s *Source) look() mesh.Update {
	u := mesh.Update{Source: sourceName, Synced: true}
	read := make(map[string]readNodes, len(s.read))
	pods := s.podsByNode()
	for _, o := range s.meshNodes.informer.GetStore().List() {
		o, ok := o.(*v1alpha1.MeshNode)
		if !ok {
			continue
		}
		r := s.readNode(o, pods)
		read[o.Name] = r
		u.Nodes = append(u.Nodes, r.node)
		u.Problems = append(u.Problems, r.problems...)
	}
	s.read = read
	for _, o := range s.peers.informer.GetStore().List() {
		o, isPeer := o.(*v1alpha1.Peer)
		if !isPeer {
			continue
		}
		p, ok, problems := readPeer(o, s.secret)
		if ok {
			u.Peers = append(u.Peers, p)
		}
		u.Problems = append(u.Problems, problems...)
	}
	u.Settings = s.settings(&u)
	return u
}

// settings are those of the ConfigMap, or the last that could be obeyed.
func (s *Source) settings(u *mesh.Update) *mesh.Settings {
	found, there, err := s.configs.informer.GetStore().GetByKey(cache.NewObjectName(s.client.namespace, SettingsName).String())
	c, ok := found.(*corev1.ConfigMap)
	if !there || !ok || err != nil {
		s.last = nil
		return nil
	}
	settings, ok, problems := readSettings(c)
	u.Problems = append(u.Problems, problems...)
	if ok {
		s.last = &settings
	}
	return s.last
}

// readNodes is what a MeshNode and its Node said.
type readNodes struct {
	meshNode *v1alpha1.MeshNode
	of       *corev1.Node
	pods     []string // of another program
	node     mesh.Node
	problems []mesh.Problem
}

// readNode reads the objects only if they are others than before: one change of one costs what one
// costs.
func (s *Source) readNode(o *v1alpha1.MeshNode, pods map[string][]string) readNodes {
	of := s.nodeOf(o.Name)
	own := pods[o.Name]
	if r := s.read[o.Name]; r.meshNode == o && r.of == of && slices.Equal(r.pods, own) {
		return r
	}
	r := readNodes{meshNode: o, of: of, pods: own}
	r.node, r.problems = readNode(o, of, s.label)
	if pods != nil && len(o.Spec.PodCIDRs) == 0 {
		in := reading{subject: mesh.Subject{Kind: mesh.KindNode, Name: o.Name, Source: s.pods.name + "/" + o.Name}}
		r.node.PodCIDRs = many(&in, "podCIDRs", own, scan.Prefix)
		r.problems = append(r.problems, in.problems...)
	}
	return r
}

// nodeOf is the Node of a MeshNode, nil when there is none.
func (s *Source) nodeOf(name string) *corev1.Node {
	found, ok, err := s.nodes.informer.GetStore().GetByKey(name)
	if !ok || err != nil {
		return nil
	}
	n, _ := found.(*corev1.Node)
	return n
}

func (s *Source) secret(name string) *corev1.Secret {
	found, ok, err := s.secrets.informer.GetStore().GetByKey(cache.NewObjectName(s.client.namespace, name).String())
	if !ok || err != nil {
		return nil
	}
	secret, _ := found.(*corev1.Secret)
	return secret
}
