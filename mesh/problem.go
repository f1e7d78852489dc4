package mesh

import (
	"cmp"
	"fmt"
	"strings"
)

// Kind is the kind of object that a Problem is about.
type Kind string

// The kinds.
const (
	KindNode   Kind = "node"
	KindPeer   Kind = "peer"
	KindMesh   Kind = "mesh"   // the settings
	KindSource Kind = "source" // where facts come from
	KindHost   Kind = "host"   // this machine
)

// Subject is the object at fault.
type Subject struct {
	Kind Kind
	Name string
	// Source is where the object stands, such as "mesh.yaml:12". It is not part of what makes
	// two subjects the same.
	Source string
}

// String is "node a (mesh.yaml:12)".
func (s Subject) String() string {
	text := string(s.Kind)
	if s.Name != "" {
		text += " " + s.Name
	}
	if s.Source != "" {
		text += " (" + s.Source + ")"
	}
	return text
}

// Reason is why something cannot be obeyed. The words are the same in conditions, logs and
// metrics.
type Reason string

// The reasons.
const (
	Invalid             Reason = "Invalid"             // the value cannot be read, or is out of range
	NoKey               Reason = "NoKey"               // the node's agent has not published a public key
	DuplicateKey        Reason = "DuplicateKey"        // an older object has the public key
	DuplicateName       Reason = "DuplicateName"       // two sources, or one twice, have an object of this name
	DuplicateInternalIP Reason = "DuplicateInternalIP" // an older node of the mesh has the internal IP
	DuplicateAddress    Reason = "DuplicateAddress"    // an older object has the mesh address
	AddressOutside      Reason = "AddressOutside"      // the mesh address is of none of the subnets
	AddressesExhausted  Reason = "AddressesExhausted"  // no address of the subnet is free
	OverlappingPrefix   Reason = "OverlappingPrefix"   // an object that goes before has the addresses
	ForbiddenPrefix     Reason = "ForbiddenPrefix"     // addresses that no tunnel may carry
	ForbiddenEndpoint   Reason = "ForbiddenEndpoint"   // no address of one other machine
	OverlapsHost        Reason = "OverlapsHost"        // the addresses are on a link of this machine
	NoEndpoint          Reason = "NoEndpoint"          // neither of two nodes can reach the other
	Overruled           Reason = "Overruled"           // the mesh has another setting than this agent was given
	NoMember            Reason = "NoMember"            // this node itself is not known, or not a member
	Unpublished         Reason = "Unpublished"         // what the node says of itself reaches nobody
	SourceDown          Reason = "SourceDown"          // the last known facts are used
	RemovalHeld         Reason = "RemovalHeld"         // more vanished at once than is believed on one answer
	Unsupported         Reason = "Unsupported"         // the kernel lacks it, or rights are missing
	Contended           Reason = "Contended"           // another program keeps removing what is ours
	HostConflict        Reason = "HostConflict"        // something of the machine stands in the way
)

// Problem is one thing that cannot be obeyed, and what is done instead. All the rest goes on as
// if it were absent.
type Problem struct {
	Subject Subject
	Field   string // as in the object: "spec.endpoint"; "" the object as a whole
	Value   string // never a secret
	Reason  Reason
	Detail  string // what is wrong, and what is done
	Remedy  string // what to do
}

// String is one line that needs no other to be understood.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Subject.String())
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + " ")
	}
	if p.Value != "" {
		fmt.Fprintf(&b, "%q ", p.Value)
	}
	b.WriteString(p.Detail)
	if p.Remedy != "" {
		b.WriteString(": " + p.Remedy)
	}
	return b.String()
}

// ID is what makes a problem the same one at the next look: it lasts while its ID does.
type ID struct {
	Kind   Kind
	Name   string
	Field  string
	Value  string
	Reason Reason
}

// ID of the problem.
func (p Problem) ID() ID { return ID{p.Subject.Kind, p.Subject.Name, p.Field, p.Value, p.Reason} }

func (p Problem) compare(q Problem) int {
	return cmp.Or(
		strings.Compare(string(p.Subject.Kind), string(q.Subject.Kind)),
		strings.Compare(p.Subject.Name, q.Subject.Name),
		strings.Compare(p.Field, q.Field),
		strings.Compare(p.Value, q.Value),
		strings.Compare(string(p.Reason), string(q.Reason)),
		strings.Compare(p.Detail, q.Detail),
	)
}
