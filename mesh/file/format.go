package file

import (
	"regexp"

	"github.com/stillwire/stillwire/mesh"
)

// sourceName is what updates call this source.
const sourceName = "files"

// The words of the format.
const (
	apiVersion = "stillwire.dev/v1alpha1"
	kindNode   = "MeshNode"
	kindPeer   = "Peer"
	kindMesh   = "Mesh"
	kindList   = "List"
	none       = "none" // in internalIPs: there is none
	// On an object that is known by its status alone, where it is written down.
	annotationUndeclared = "stillwire.dev/undeclared"
)

// What bounds the work that a file can make.
const (
	maxFile     = 16 << 20  // bytes of a file
	maxStatus   = 256 << 10 // bytes of a status file, which any node may write: 2,500 learned endpoints
	maxMemory   = 256 << 20 // bytes of the facts that an agent keeps
	maxKeyFile  = 4 << 10   // bytes of a file that holds one key
	maxNodes    = 1 << 20   // YAML nodes that are looked at in a file, those behind an alias each time
	maxSaid     = 1 << 16   // of these in a status file
	maxProblems = 200       // of a file
)

// kinds are the words of problems for those of the format.
var kinds = map[string]mesh.Kind{kindNode: mesh.KindNode, kindPeer: mesh.KindPeer, kindMesh: mesh.KindMesh}

// word is what a field may look like to be shown when it is unknown: anything else could be a
// key on a line of its own.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/-]{0,39}$`)
