package kilo

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/stillwire/stillwire/device"
	"github.com/stillwire/stillwire/mesh"
)

// NodeObject is what Kilo reads of a Kubernetes Node.
type NodeObject struct {
	Name        string
	PodCIDR     string // spec.podCIDR
	Labels      map[string]string
	Annotations map[string]string
}

// Node is a node as Kilo sees it.
type Node struct {
	Name     string
	Location string // of the annotation, or else of the label
	Leader   bool
	Endpoint device.Endpoint // none: not known
	// Declared says that the endpoint is the administrator's.
	Declared   bool
	InternalIP netip.Prefix // the address with the mask of its link; invalid: none
	// Internal says whose word the internal IP is.
	Internal Internal
	PodCIDR  netip.Prefix // invalid: none
	Key      device.PublicKey
	// PersistentKeepalive is towards all peers, as Kilo reads it: it may be negative. Any but 0
	// also says that the node may roam.
	PersistentKeepalive time.Duration
	AllowedLocationIPs  []netip.Prefix // as written, host bits and all
	LastSeen            time.Time
	// Discovered is where the node sees packets of others come from, by their key.
	Discovered map[device.PublicKey]device.Endpoint
}

// Internal is how the internal IP of a node is known.
type Internal string

// The ways.
const (
	Found    Internal = ""         // by the node itself
	Declared Internal = "declared" // by the administrator
	None     Internal = "none"     // the administrator says that there is none
)

// staleAfter is the age from which on Kilo takes a node for gone.
const staleAfter = 60 * time.Second

// Ready reports whether Kilo counts the node among the mesh.
func (n Node) Ready(now time.Time) bool {
	return !n.Endpoint.IsZero() && !n.Key.IsZero() && n.PodCIDR.IsValid() &&
		now.Unix()-n.LastSeen.Unix() < int64(staleAfter/time.Second)
}

// ReadNode reads a node with the label that tells its location. It names what Kilo passes over
// without a word.
func ReadNode(o NodeObject, label string) (Node, []mesh.Problem) {
	r := reader{subject: mesh.Subject{Kind: mesh.KindNode, Name: o.Name, Source: "node/" + o.Name}, annotations: o.Annotations}
	n := Node{Name: o.Name}
	n.PodCIDR = podCIDR(o.PodCIDR)
	n.Location, _ = r.lookup(location, o.Labels[label])
	n.Leader = r.leader()
	n.Endpoint, n.Declared = r.endpoint()
	n.InternalIP, n.Internal = r.internalIP()
	n.Key = r.key()
	n.PersistentKeepalive = r.keepalive()
	n.AllowedLocationIPs = r.allowedLocationIPs()
	n.LastSeen = r.lastSeen()
	n.Discovered = r.discovered()
	return n, r.problems
}

// podCIDR is the range, without host bits.
func podCIDR(text string) netip.Prefix {
	p, _ := parsePrefix(text)
	return p.Masked()
}

// reader reads the annotations of one node.
type reader struct {
	subject     mesh.Subject
	annotations map[string]string
	problems    []mesh.Problem
}

func (r *reader) lookup(name, otherwise string) (value string, found bool) {
	if value, found = r.annotations[name]; !found {
		value = otherwise
	}
	return value, found
}

func (r *reader) report(field, value string, reason mesh.Reason, detail, remedy string) {
	r.problems = append(r.problems, mesh.Problem{
		Subject: r.subject, Field: "metadata.annotations[" + field + "]", Value: value, Reason: reason, Detail: detail, Remedy: remedy,
	})
}

// leader is true whatever the annotation says.
func (r *reader) leader() bool {
	value, found := r.annotations[leader]
	if no, err := strconv.ParseBool(value); found && err == nil && !no {
		r.report(leader, value, mesh.Invalid, "makes the node a leader all the same", "remove the annotation")
	}
	return found
}

func (r *reader) endpoint() (e device.Endpoint, declared bool) {
	forced, found := r.annotations[forceEndpoint]
	if e, ok := parseEndpoint(forced); ok {
		return e, true
	}
	if found && forced != "" {
		r.report(forceEndpoint, forced, mesh.Invalid, "is no endpoint, the one that the node found is used", "write it with its port, such as 203.0.113.7:51820")
	}
	e, _ = parseEndpoint(r.annotations[endpoint])
	return e, false
}

func (r *reader) internalIP() (netip.Prefix, Internal) {
	forced, found := r.annotations[forceInternalIP]
	if found && (forced == "" || forced == "-") {
		return netip.Prefix{}, None
	}
	if p, ok := parsePrefix(forced); ok {
		return p, Declared
	}
	if found {
		r.report(forceInternalIP, forced, mesh.Invalid, "is no address with a mask, the one that the node found is used", "write it with the mask of its link, such as 10.1.0.5/24")
	}
	p, _ := parsePrefix(r.annotations[internalIP])
	return p, Found
}

func (r *reader) key() device.PublicKey {
	value, found := r.annotations[key]
	k, err := device.ParsePublicKey(value)
	if found && err != nil {
		r.report(key, "", mesh.NoKey, "is no public key, the node is left out", "restart the agent of the node, which writes it")
	}
	return k
}

func (r *reader) keepalive() time.Duration {
	value, found := r.annotations[persistentKeepalive]
	seconds, err := strconv.ParseInt(value, 10, 64)
	if found && (err != nil || seconds < 0 || seconds > 65535) {
		r.report(persistentKeepalive, value, mesh.Invalid, "is no number of seconds from 0 to 65535, none is sent", "write it without a unit, such as 25")
	}
	return time.Duration(seconds) * time.Second
}

func (r *reader) allowedLocationIPs() (list []netip.Prefix) {
	value, found := r.annotations[allowedLocationIPs]
	if !found {
		return nil
	}
	for text := range strings.SplitSeq(value, ",") {
		p, ok := parsePrefix(text)
		switch {
		case !ok:
			r.report(allowedLocationIPs, text, mesh.Invalid, "is no prefix, it is ignored", "write prefixes with commas and no blanks between, such as 10.1.2.0/24,10.1.3.4/32")
			continue
		case p.Bits() == 0:
			r.report(allowedLocationIPs, text, mesh.ForbiddenPrefix, "takes all traffic of all other locations", "name the ranges that are meant")
		}
		list = append(list, p)
	}
	return list
}

// lastSeen is the epoch where there is none.
func (r *reader) lastSeen() time.Time {
	seconds, _ := strconv.ParseInt(r.annotations[lastSeen], 10, 64)
	return time.Unix(seconds, 0)
}

// udpAddr is an address as Kilo writes it.
type udpAddr struct {
	IP   string
	Port int
	Zone string
}

func (r *reader) discovered() map[device.PublicKey]device.Endpoint {
	value, found := r.annotations[discoveredEndpoints]
	if !found || value == "" {
		return nil
	}
	var raw map[string]*udpAddr
	if err := json.Unmarshal([]byte(value), &raw); err != nil {
		r.report(discoveredEndpoints, "", mesh.Invalid, fmt.Sprintf("is not what agents write (%v), it is ignored", err), "remove the annotation, the agent writes it anew")
		return nil
	}
	list := make(map[device.PublicKey]device.Endpoint, len(raw))
	for text, a := range raw {
		k, err := device.ParsePublicKey(text)
		if err != nil || a == nil {
			continue
		}
		if e, ok := parseEndpoint(hostPort(a.IP, a.Port)); ok {
			list[k] = e
		}
	}
	return list
}
